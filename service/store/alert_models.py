"""Tables of webhooks and of what is sent to them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, Integer
from sqlalchemy.orm import Mapped, mapped_column

from service.store.models import Base


class WebhookRow(Base):
    """``secret``: what messages are signed with, so it is stored as it is. ``seen``: notices up to here are done."""

    __tablename__ = "webhooks"

    id: Mapped[str] = mapped_column(primary_key=True)
    url: Mapped[str]
    kind: Mapped[str]
    kinds: Mapped[list[Any]]
    secret: Mapped[str]
    created_at: Mapped[datetime]
    created_by: Mapped[str]
    seen: Mapped[int] = mapped_column(BigInteger())


class DeliveryRow(Base):
    """A message to a webhook. ``due_at``: when it is sent (again); ``status``, ``detail``: of the last try."""

    __tablename__ = "deliveries"

    # SQLite counts up only a column that it calls INTEGER.
    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer(), "sqlite"), primary_key=True)
    webhook_id: Mapped[str] = mapped_column(ForeignKey("webhooks.id", ondelete="CASCADE"))
    payload: Mapped[dict[str, Any]]
    state: Mapped[str]
    attempts: Mapped[int]
    created_at: Mapped[datetime]
    due_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    status: Mapped[int | None]
    detail: Mapped[str | None]

    __table_args__ = (
        Index("ix_deliveries_state_due_at", "state", "due_at"),
        Index("ix_deliveries_webhook_id_id", "webhook_id", "id"),
    )
