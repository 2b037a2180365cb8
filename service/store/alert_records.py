"""What the store takes in and gives out about webhooks: frozen plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from service.domain.webhooks import DeliveryState, WebhookKind


@dataclass(frozen=True)
class Webhook:
    """``kinds``: of notices that it is told. ``url`` and ``secret`` open something: they are shown to nobody again."""

    id: str
    url: str = field(repr=False)
    kind: WebhookKind
    kinds: tuple[str, ...]
    secret: str = field(repr=False)
    created_at: datetime
    created_by: str


@dataclass(frozen=True)
class Delivery:
    """``status``: of the last answer, ``None`` where there was none; ``detail`` says why."""

    id: int
    webhook_id: str
    state: DeliveryState
    attempts: int
    created_at: datetime
    due_at: datetime
    ended_at: datetime | None
    status: int | None
    detail: str | None


@dataclass(frozen=True)
class Message:
    """A delivery that the caller now has to send, and where to."""

    delivery: Delivery
    webhook: Webhook
    payload: dict[str, Any]
