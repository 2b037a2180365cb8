"""Tells webhooks of new notices, again and again: from the database, so that no message is lost with a controller.

What is new becomes a message in the same transaction in which the webhook is noted as told. Messages that are due are
taken, sent and concluded; one whose controller died is due again. So each arrives at least once, under one id.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from sqlalchemy.orm import Session

from service.alerts.links import Links
from service.alerts.of_notices import alert, by_sweep, notices_behind
from service.alerts.sending import LIMIT_S, Sent, send
from service.domain.alerts import generic, slack
from service.domain.webhooks import WebhookKind, after_attempt
from service.settings import Settings
from service.store import Store
from service.store.alert_records import Message, Webhook
from service.store.repositories import alerts
from service.store.series_records import NoticeRecord

logger = logging.getLogger(__name__)

PASS_EVERY_S = 5.0
AT_ONCE = 20
"""Messages that are sent at the same time."""

LEASE = timedelta(seconds=4 * LIMIT_S)
KEPT = timedelta(days=90)
"""So long is remembered what was sent."""

TIDY_EVERY = timedelta(hours=1)

Clock = Callable[[], datetime]
FORMS = {WebhookKind.GENERIC: generic, WebhookKind.SLACK: slack}


def wall_clock() -> datetime:
    return datetime.now(UTC)


class Alerting:
    """``leads``: whether this controller is the one that sends, asked before each pass."""

    def __init__(self, store: Store, settings: Settings, leads: Callable[[], bool], clock: Clock = wall_clock) -> None:
        self._store = store
        self._private = settings.alerts_to_private_addresses
        self._links = Links(settings.public_url)
        self._leads = leads
        self._clock = clock
        self._tidied: datetime | None = None

    def run_pass(self) -> int:
        """Make messages of what is new, and send those that are due; how many were sent."""
        if not self._leads():
            return 0
        self._gather()
        self._tidy()
        messages = self._taken()
        if messages:
            asyncio.run(self._send_all(messages))
        return len(messages)

    def _gather(self) -> None:
        with self._store.reading() as session:
            waiting = alerts.behind(session)
        for webhook_id, seen in waiting.items():
            with self._store.transaction() as session:
                self._tell(session, webhook_id, seen)

    def _tell(self, session: Session, webhook_id: str, seen: int) -> None:
        newest = alerts.newest_notice(session)
        if not alerts.has_seen(session, webhook_id, seen, newest):
            return
        webhook = alerts.get_webhook(session, webhook_id)
        wanted = [item for item in notices_behind(session, seen, newest) if str(item.kind) in webhook.kinds]
        for sweep_id, notices in by_sweep(wanted).items():
            alerts.add_delivery(session, webhook_id, self._payload(webhook, sweep_id, notices), self._clock())

    def _payload(self, webhook: Webhook, sweep_id: str, notices: Sequence[NoticeRecord]) -> dict[str, object]:
        told = [alert(notice, self._links) for notice in notices]
        return FORMS[webhook.kind](sweep_id, told, self._links.sweep(sweep_id))

    def _taken(self) -> list[Message]:
        now = self._clock()
        with self._store.reading() as session:
            due = alerts.due_deliveries(session, now, AT_ONCE)
        if not due:
            return []
        with self._store.transaction() as session:
            taken = [alerts.take_delivery(session, delivery_id, now, LEASE) for delivery_id in due]
        return [message for message in taken if message is not None]

    async def _send_all(self, messages: Sequence[Message]) -> None:
        answers = await asyncio.gather(*map(self._send, messages))
        for message, sent in zip(messages, answers, strict=True):
            self._conclude(message, sent)

    async def _send(self, message: Message) -> Sent:
        return await send(
            message.webhook.url,
            message.webhook.secret,
            f"msg_{message.delivery.id}",
            message.payload,
            int(self._clock().timestamp()),
            self._private,
        )

    def _conclude(self, message: Message, sent: Sent) -> None:
        taken, now = message.delivery, self._clock()
        state, wait = after_attempt(taken.attempts, sent.status)
        due_at = None if wait is None else now + wait
        with self._store.transaction() as session:
            alerts.conclude_attempt(session, taken, state, now, due_at, sent.status, sent.detail)
        if sent.detail is not None:
            logger.warning("webhook %s, attempt %d: %s: %s", taken.webhook_id, taken.attempts, state, sent.detail)

    def _tidy(self) -> None:
        now = self._clock()
        if self._tidied is None or now - self._tidied >= TIDY_EVERY:
            self._tidied = now
            with self._store.transaction() as session:
                alerts.forget_deliveries(session, now - KEPT)


@contextlib.contextmanager
def alerting(passes: Alerting) -> Iterator[None]:
    """Webhooks are told inside the block. What is being sent at its end is waited for."""
    stop = threading.Event()
    thread = threading.Thread(target=_keep_on, args=(passes, stop), name="alerts", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _keep_on(passes: Alerting, stop: threading.Event) -> None:
    while not stop.wait(PASS_EVERY_S):
        try:
            passes.run_pass()
        except Exception:
            # The database may be away for a while; messages wait for it.
            logger.exception("alerts")
