"""Tables. Only ``service.store.repositories`` reads or writes them.

JSON columns hold plain JSON values and are replaced as a whole, never changed in place.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

CONVENTION = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
"""Names of constraints, so that a later migration can address them on every database."""


class UtcDateTime(TypeDecorator[datetime]):
    """A point in time. SQLite drops the zone, so it is stored in UTC and handed back as UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value!r} has no time zone; store datetime.now(UTC) or another aware datetime")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class AnyText(TypeDecorator[str]):
    """Text as it may come from outside. PostgreSQL has no NUL, no database half a character: both are replaced."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return (
            None
            if value is None
            else value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
        )


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=CONVENTION)
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy reads it as it stands
        str: AnyText(),
        datetime: UtcDateTime(),
        dict[str, Any]: JSON(none_as_null=True),
        list[Any]: JSON(none_as_null=True),
    }


class SweepRow(Base):
    __tablename__ = "sweeps"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    created_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    state: Mapped[str]
    owner: Mapped[str]
    matrix: Mapped[dict[str, Any]]
    timeouts: Mapped[dict[str, Any]]
    environment: Mapped[dict[str, Any] | None]

    __table_args__ = (Index("ix_sweeps_state_owner", "state", "owner"),)


class CellRow(Base):
    __tablename__ = "cells"

    sweep_id: Mapped[str] = mapped_column(ForeignKey("sweeps.id", ondelete="CASCADE"), primary_key=True)
    id: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int]
    name: Mapped[str]
    requested: Mapped[dict[str, Any]]
    expect: Mapped[list[Any]]
    checks: Mapped[list[Any]]
    state: Mapped[str]
    effective: Mapped[dict[str, Any] | None]
    changes: Mapped[list[Any]]
    patches: Mapped[dict[str, Any]]
    shape: Mapped[dict[str, Any] | None]
    problems: Mapped[list[Any]]
    notes: Mapped[list[Any] | None]
    environment: Mapped[dict[str, Any] | None]
    fingerprint: Mapped[str | None]
    duplicate_of: Mapped[str | None]
    verdict: Mapped[str | None]
    ok: Mapped[bool | None]
    reasons: Mapped[list[Any]]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]

    __table_args__ = (
        ForeignKeyConstraint(["sweep_id", "duplicate_of"], ["cells.sweep_id", "cells.id"]),
        UniqueConstraint("sweep_id", "position"),
        Index("ix_cells_sweep_id_state", "sweep_id", "state"),
        Index("ix_cells_sweep_id_duplicate_of", "sweep_id", "duplicate_of"),
        Index("ix_cells_sweep_id_ok", "sweep_id", "ok"),
    )


class RunRow(Base):
    __tablename__ = "runs"

    id: Mapped[str] = mapped_column(primary_key=True)
    sweep_id: Mapped[str]
    cell_id: Mapped[str]
    attempt: Mapped[int]
    state: Mapped[str]
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    spec: Mapped[dict[str, Any]]
    evidence: Mapped[dict[str, Any] | None]
    failure: Mapped[str | None]

    __table_args__ = (
        ForeignKeyConstraint(["sweep_id", "cell_id"], ["cells.sweep_id", "cells.id"], ondelete="CASCADE"),
        UniqueConstraint("sweep_id", "cell_id", "attempt"),
    )


class RunPartRow(Base):
    """What a report says by the evidence of a run, as JSON ``text`` in the format ``form``.

    ``environment``, ``patches``: what the evidence says of these, to which the report adds.
    """

    __tablename__ = "run_parts"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    form: Mapped[str]
    environment: Mapped[dict[str, Any] | None]
    patches: Mapped[dict[str, Any]]
    text: Mapped[str]


class ArmRow(Base):
    """A shared arm: its key addresses it by content, whoever needs it first runs it for all."""

    __tablename__ = "arms"

    key: Mapped[str] = mapped_column(primary_key=True)
    role: Mapped[str]
    state: Mapped[str]
    folder: Mapped[str]
    report: Mapped[dict[str, Any] | None]
    owner: Mapped[str]

    __table_args__ = (Index("ix_arms_state_owner", "state", "owner"),)


class EventRow(Base):
    __tablename__ = "events"

    # SQLite counts up only a column that it calls INTEGER.
    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer(), "sqlite"), primary_key=True)
    sweep_id: Mapped[str] = mapped_column(ForeignKey("sweeps.id", ondelete="CASCADE"))
    cell_id: Mapped[str | None]
    run_id: Mapped[str | None]
    at: Mapped[float] = mapped_column(Float(53))
    kind: Mapped[str]
    arm: Mapped[str | None]
    rank: Mapped[int | None]
    data: Mapped[dict[str, Any]]

    __table_args__ = (
        Index("ix_events_sweep_id_id", "sweep_id", "id"),
        Index("ix_events_run_id_id", "run_id", "id"),
        Index("ix_events_sweep_id_kind_cell_id_rank_id", "sweep_id", "kind", "cell_id", "rank", "id"),
    )


# Tables in modules of their own; who has this module has all of them.
from service.store import alert_models as alert_models  # noqa: E402
from service.store import schedule_models as schedule_models  # noqa: E402
from service.store import series_models as series_models  # noqa: E402
