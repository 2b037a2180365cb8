"""Queries on webhooks and on the messages to them. The notices that they tell of are in ``series``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from service.domain.webhooks import DeliveryState, WebhookKind
from service.store.alert_models import DeliveryRow, WebhookRow
from service.store.alert_records import Delivery, Message, Webhook
from service.store.records import UnknownRecord
from service.store.series_models import NoticeRow


def add_webhook(session: Session, webhook: Webhook) -> None:
    """Store a webhook, which is told of what happens from now on."""
    session.add(
        WebhookRow(
            id=webhook.id,
            url=webhook.url,
            kind=webhook.kind,
            kinds=list(webhook.kinds),
            secret=webhook.secret,
            created_at=webhook.created_at,
            created_by=webhook.created_by,
            seen=newest_notice(session),
        )
    )


def get_webhook(session: Session, webhook_id: str) -> Webhook:
    return _webhook(_row(session, webhook_id))


def list_webhooks(session: Session, limit: int, before: str | None = None) -> list[Webhook]:
    """Newest first: ids sort by time; with ``before`` only those older than that one."""
    query = select(WebhookRow).order_by(WebhookRow.id.desc()).limit(limit)
    if before is not None:
        query = query.where(WebhookRow.id < before)
    return [_webhook(row) for row in session.scalars(query)]


def delete_webhook(session: Session, webhook_id: str) -> Webhook:
    """Forget a webhook and what was sent to it; what it was."""
    deleted = _webhook(_row(session, webhook_id))
    session.execute(delete(DeliveryRow).where(DeliveryRow.webhook_id == webhook_id))
    session.execute(delete(WebhookRow).where(WebhookRow.id == webhook_id))
    return deleted


def behind(session: Session) -> dict[str, int]:
    """Webhooks that were not told of the newest notices: the last one that each is done with."""
    query = select(WebhookRow.id, WebhookRow.seen).where(WebhookRow.seen < newest_notice(session))
    return {row.id: row.seen for row in session.execute(query)}


def has_seen(session: Session, webhook_id: str, seen: int, until: int) -> bool:
    """Note that a webhook is done with notices up to ``until``; not if somebody else did since it had ``seen``."""
    row = session.get(WebhookRow, webhook_id, with_for_update=True)
    if row is None or row.seen != seen:
        return False
    row.seen = until
    return True


def add_delivery(session: Session, webhook_id: str, payload: Mapping[str, Any], now: datetime) -> Delivery:
    """Have a message sent."""
    row = DeliveryRow(
        webhook_id=webhook_id,
        payload=dict(payload),
        state=DeliveryState.WAITING,
        attempts=0,
        created_at=now,
        due_at=now,
    )
    session.add(row)
    session.flush()
    return _delivery(row)


def due_deliveries(session: Session, now: datetime, limit: int) -> list[int]:
    """Ids of messages whose time has come, the longest overdue first."""
    query = (
        select(DeliveryRow.id)
        .where(DeliveryRow.state == DeliveryState.WAITING, DeliveryRow.due_at <= now)
        .order_by(DeliveryRow.due_at)
        .limit(limit)
    )
    return list(session.scalars(query))


def take_delivery(session: Session, delivery_id: int, now: datetime, lease: timedelta) -> Message | None:
    """Begin an attempt; ``None`` if somebody else did. One that is never concluded is due again after the lease."""
    row = session.get(DeliveryRow, delivery_id, with_for_update=True)
    if row is None or row.state != DeliveryState.WAITING or row.due_at > now:
        return None
    row.attempts += 1
    row.due_at = now + lease
    session.flush()
    return Message(_delivery(row), get_webhook(session, row.webhook_id), row.payload)


def conclude_attempt(
    session: Session,
    taken: Delivery,
    state: DeliveryState,
    now: datetime,
    due_at: datetime | None,
    status: int | None,
    detail: str | None,
) -> bool:
    """Note what became of an attempt; not if its lease ran out and another one was begun."""
    values: dict[str, Any] = {"state": state, "status": status, "detail": detail}
    values |= {"ended_at": now} if due_at is None else {"due_at": due_at}
    change = update(DeliveryRow).where(
        DeliveryRow.id == taken.id,
        DeliveryRow.state == DeliveryState.WAITING,
        DeliveryRow.attempts == taken.attempts,
    )
    return bool(session.execute(change.values(**values).returning(DeliveryRow.id)).all())


def list_deliveries(session: Session, webhook_id: str, limit: int, before: int | None = None) -> list[Delivery]:
    """What was sent to a webhook, newest first; with ``before`` only what is older than that one."""
    _row(session, webhook_id)
    query = select(DeliveryRow).where(DeliveryRow.webhook_id == webhook_id).order_by(DeliveryRow.id.desc()).limit(limit)
    if before is not None:
        query = query.where(DeliveryRow.id < before)
    return [_delivery(row) for row in session.scalars(query)]


def forget_deliveries(session: Session, before: datetime) -> None:
    """Forget messages that were sent, or given up, and were due before then."""
    ended = (DeliveryState.DELIVERED, DeliveryState.FAILED)
    session.execute(delete(DeliveryRow).where(DeliveryRow.state.in_(ended), DeliveryRow.due_at < before))


def newest_notice(session: Session) -> int:
    """Id of the newest notice; 0 while there is none."""
    return session.scalars(select(func.max(NoticeRow.id))).one() or 0


def _row(session: Session, webhook_id: str) -> WebhookRow:
    row = session.get(WebhookRow, webhook_id)
    if row is None:
        raise UnknownRecord("webhook", webhook_id)
    return row


def _webhook(row: WebhookRow) -> Webhook:
    return Webhook(
        id=row.id,
        url=row.url,
        kind=WebhookKind(row.kind),
        kinds=tuple(row.kinds),
        secret=row.secret,
        created_at=row.created_at,
        created_by=row.created_by,
    )


def _delivery(row: DeliveryRow) -> Delivery:
    return Delivery(
        id=row.id,
        webhook_id=row.webhook_id,
        state=DeliveryState(row.state),
        attempts=row.attempts,
        created_at=row.created_at,
        due_at=row.due_at,
        ended_at=row.ended_at,
        status=row.status,
        detail=row.detail,
    )
