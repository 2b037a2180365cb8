"""Tables of who may do what, and of what they did: keys, sessions, submissions, the audit trail."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, Integer
from sqlalchemy.orm import Mapped, mapped_column

from service.store.models import Base


class KeyRow(Base):
    """``digest``: what the key is recognised by; the key itself is stored nowhere."""

    __tablename__ = "keys"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    scope: Mapped[str]
    digest: Mapped[str]
    created_at: Mapped[datetime]
    created_by: Mapped[str]
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class SessionRow(Base):
    """A browser that has shown a key."""

    __tablename__ = "sessions"

    digest: Mapped[str] = mapped_column(primary_key=True)
    key_id: Mapped[str] = mapped_column(ForeignKey("keys.id", ondelete="CASCADE"))
    expires_at: Mapped[datetime]

    __table_args__ = (Index("ix_sessions_expires_at", "expires_at"), Index("ix_sessions_key_id", "key_id"))


class SubmissionRow(Base):
    """An ``Idempotency-Key`` and the sweep it stands for, whose id is chosen before there is a sweep.

    ``key_id`` is empty where no key is needed.
    """

    __tablename__ = "submissions"

    key_id: Mapped[str] = mapped_column(primary_key=True)
    idempotency_key: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str]
    sweep_id: Mapped[str]
    created_at: Mapped[datetime]

    __table_args__ = (Index("ix_submissions_created_at", "created_at"),)


class AuditRow(Base):
    """Somebody changed something, or tried to. ``status`` is the answer's, ``actor`` a name as it was then."""

    __tablename__ = "audit"

    # SQLite counts up only a column that it calls INTEGER.
    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer(), "sqlite"), primary_key=True)
    at: Mapped[datetime]
    key_id: Mapped[str | None]
    actor: Mapped[str]
    action: Mapped[str]
    target: Mapped[str]
    status: Mapped[int | None]
    client: Mapped[str | None]

    __table_args__ = (Index("ix_audit_key_id_id", "key_id", "id"),)
