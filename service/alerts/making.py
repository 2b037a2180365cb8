"""A new webhook."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime

from service.domain.addresses import check_url
from service.domain.notices import NoticeKind
from service.domain.webhooks import WebhookKind, secret_of
from service.settings import Settings
from service.store import Store
from service.store.alert_records import Webhook
from service.store.repositories import alerts

SECRET_BYTES = 32


def make_webhook(
    store: Store, settings: Settings, url: str, kind: WebhookKind, kinds: Sequence[NoticeKind], created_by: str
) -> Webhook:
    """Have ``url`` told of ``kinds`` of notices from now on. ``created_by``: id of a key, or in words who it was.

    Raises:
        BadAddress: if nothing may be sent there.
    """
    check_url(url, settings.alerts_to_private_addresses)
    now = datetime.now(UTC)
    webhook = Webhook(
        # Ids sort by time.
        id=f"{int(now.timestamp()):08x}{secrets.token_hex(2)}",
        url=url,
        kind=kind,
        kinds=tuple(dict.fromkeys(kinds)),
        secret=secret_of(secrets.token_bytes(SECRET_BYTES)),
        created_at=now,
        created_by=created_by,
    )
    with store.transaction() as session:
        alerts.add_webhook(session, webhook)
    return webhook
