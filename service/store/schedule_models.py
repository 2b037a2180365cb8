"""Tables of schedules and of what they fired."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from service.store.models import Base


class ScheduleRow(Base):
    """``served_until``: times up to here are done with. ``next_at``: the time to wait for; none while suspended.

    ``key_id``: the API key that it was made with, to whose limits its sweeps count.
    """

    __tablename__ = "schedules"

    name: Mapped[str] = mapped_column(primary_key=True)
    cron: Mapped[str]
    timezone: Mapped[str]
    missed: Mapped[str]
    suspended: Mapped[bool]
    matrix: Mapped[dict[str, Any]]
    version: Mapped[int]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    served_until: Mapped[datetime]
    next_at: Mapped[datetime | None]
    key_id: Mapped[str | None]

    __table_args__ = (Index("ix_schedules_next_at", "next_at"),)


class FireRow(Base):
    """One time of a schedule: whoever inserts the row serves it. ``due_at`` is null where somebody asked."""

    __tablename__ = "schedule_fires"

    # SQLite counts up only a column that it calls INTEGER.
    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer(), "sqlite"), primary_key=True)
    schedule: Mapped[str] = mapped_column(ForeignKey("schedules.name", ondelete="CASCADE"))
    due_at: Mapped[datetime | None]
    cause: Mapped[str]
    state: Mapped[str]
    owner: Mapped[str]
    claimed_at: Mapped[datetime]
    lease_until: Mapped[datetime]
    attempts: Mapped[int]
    ended_at: Mapped[datetime | None]
    sweep_id: Mapped[str | None]
    detail: Mapped[str | None]

    __table_args__ = (
        UniqueConstraint("schedule", "due_at"),
        Index("ix_schedule_fires_schedule_id", "schedule", "id"),
        Index("ix_schedule_fires_state_lease_until", "state", "lease_until"),
    )
