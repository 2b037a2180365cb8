"""Tables of what is known of a configuration over time. Nothing here hangs on a sweep: it outlives them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Float, ForeignKey, Index, Integer, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from service.store.models import Base

# SQLite counts up only a column that it calls INTEGER.
_COUNTED = BigInteger().with_variant(Integer(), "sqlite")


class SeriesRow(Base):
    """A configuration on one kind of machine, see ``service.domain.series``. ``last_…``: of its newest outcome."""

    __tablename__ = "series"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    settings: Mapped[dict[str, Any]]
    environment: Mapped[str]
    device: Mapped[str]
    devices: Mapped[int]
    cores: Mapped[int]
    pinned: Mapped[bool]
    created_at: Mapped[datetime]
    last_at: Mapped[datetime]
    last_verdict: Mapped[str]
    last_ok: Mapped[bool]

    __table_args__ = (
        Index("ix_series_name_id", "name", "id"),
        Index("ix_series_pinned_name_id", "pinned", "name", "id"),
        Index("ix_series_last_ok_last_at", "last_ok", "last_at"),
    )


class OutcomeRow(Base):
    """What became of a cell of the series in one sweep; run again, it is replaced."""

    __tablename__ = "outcomes"

    id: Mapped[int] = mapped_column(_COUNTED, primary_key=True)
    series_id: Mapped[str] = mapped_column(ForeignKey("series.id"))
    sweep_id: Mapped[str]
    cell_id: Mapped[str]
    run_id: Mapped[str | None]
    at: Mapped[datetime]
    verdict: Mapped[str]
    ok: Mapped[bool]
    versions: Mapped[dict[str, Any]]

    __table_args__ = (
        UniqueConstraint("sweep_id", "cell_id"),
        Index("ix_outcomes_series_id_at", "series_id", "at"),
    )


class PointRow(Base):
    """A figure of an outcome. ``at``: Unix time. ``baseline``: what it was held against then."""

    __tablename__ = "points"

    id: Mapped[int] = mapped_column(_COUNTED, primary_key=True)
    outcome_id: Mapped[int] = mapped_column(_COUNTED, ForeignKey("outcomes.id", ondelete="CASCADE"))
    series_id: Mapped[str]
    figure: Mapped[str]
    at: Mapped[float] = mapped_column(Float(53))
    value: Mapped[float] = mapped_column(Float(53))
    lowest: Mapped[float] = mapped_column(Float(53))
    highest: Mapped[float] = mapped_column(Float(53))
    repeats: Mapped[int]
    baseline: Mapped[float | None] = mapped_column(Float(53))

    __table_args__ = (
        UniqueConstraint("outcome_id", "figure"),
        # With all that a chart is drawn from: the points of a figure lie far apart in the table, one to a night.
        Index("ix_points_drawn", "series_id", "figure", "at", "value", "lowest", "highest", "outcome_id"),
    )


class NumberRow(Base):
    """Each number from 0 on that a dot of a chart may have, see ``repositories.trends``. Never written to.

    Grouped by a column in whose order it reads anyway, SQLite need not sort what it groups.
    """

    __tablename__ = "numbers"

    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class BaselineRow(Base):
    """From this point on is as it should be: somebody said so, and why."""

    __tablename__ = "baselines"

    id: Mapped[int] = mapped_column(_COUNTED, primary_key=True)
    series_id: Mapped[str] = mapped_column(ForeignKey("series.id"))
    figure: Mapped[str]
    point_id: Mapped[int] = mapped_column(_COUNTED)
    from_at: Mapped[float] = mapped_column(Float(53))
    value: Mapped[float] = mapped_column(Float(53))
    reason: Mapped[str]
    author: Mapped[str]
    at: Mapped[datetime]

    __table_args__ = (Index("ix_baselines_series_id_figure_id", "series_id", "figure", "id"),)


class MuteRow(Base):
    __tablename__ = "mutes"

    id: Mapped[int] = mapped_column(_COUNTED, primary_key=True)
    series_id: Mapped[str] = mapped_column(ForeignKey("series.id"))
    until: Mapped[datetime]
    reason: Mapped[str]
    author: Mapped[str]
    at: Mapped[datetime]

    __table_args__ = (Index("ix_mutes_series_id_until", "series_id", "until"),)


class StandingRow(Base):
    """How a figure of a series stands since its newest point. Made from the points, so that lists need not be."""

    __tablename__ = "standings"

    series_id: Mapped[str] = mapped_column(ForeignKey("series.id"), primary_key=True)
    figure: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[str]
    point_id: Mapped[int] = mapped_column(_COUNTED)
    at: Mapped[float] = mapped_column(Float(53))
    value: Mapped[float] = mapped_column(Float(53))
    baseline: Mapped[float | None] = mapped_column(Float(53))
    lower: Mapped[float | None] = mapped_column(Float(53))
    upper: Mapped[float | None] = mapped_column(Float(53))
    noise: Mapped[float | None] = mapped_column(Float(53))
    ratio: Mapped[float | None] = mapped_column(Float(53))
    points: Mapped[int]
    missing: Mapped[int]
    from_at: Mapped[float] = mapped_column(Float(53))
    since_point_id: Mapped[int | None] = mapped_column(_COUNTED)

    __table_args__ = (Index("ix_standings_state_at", "state", "at"),)


class NoticeRow(Base):
    """Something that people should hear of. Added to, never changed."""

    __tablename__ = "notices"

    id: Mapped[int] = mapped_column(_COUNTED, primary_key=True)
    at: Mapped[datetime]
    kind: Mapped[str]
    series_id: Mapped[str | None] = mapped_column(ForeignKey("series.id"))
    figure: Mapped[str | None]
    sweep_id: Mapped[str]
    cell_id: Mapped[str]
    what: Mapped[str]
    before: Mapped[float | None] = mapped_column(Float(53))
    after: Mapped[float | None] = mapped_column(Float(53))
    ratio: Mapped[float | None] = mapped_column(Float(53))
    since_sweep_id: Mapped[str | None]
    versions_before: Mapped[dict[str, Any]]
    versions_after: Mapped[dict[str, Any]]

    __table_args__ = (
        Index("ix_notices_kind_id", "kind", "id"),
        Index("ix_notices_series_id_id", "series_id", "id"),
        Index("ix_notices_sweep_id", "sweep_id"),
    )
