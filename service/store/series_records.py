"""What the store takes in and gives out about series: frozen plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from service.domain.measured import Measured
from service.domain.notices import NoticeKind
from service.domain.regression import Condition
from service.domain.verdict import Verdict

Versions = Mapping[str, Any]
"""What an outcome was measured with: ``vllm``, ``torch``, ``ray``, ``python``, ``driver``; where known."""


@dataclass(frozen=True)
class NewSeries:
    """A configuration on one kind of machine. ``settings``: what was written of it, as the engine resolved it."""

    id: str
    name: str
    settings: dict[str, Any]
    environment: str
    device: str
    devices: int
    cores: int


@dataclass(frozen=True)
class SeriesRecord(NewSeries):
    """``last_…``: of its newest outcome. ``name`` is that of the cell which had it last."""

    pinned: bool
    created_at: datetime
    last_at: datetime
    last_verdict: Verdict
    last_ok: bool


@dataclass(frozen=True)
class NewOutcome:
    """What became of a cell in one sweep. ``points``: none where nothing was measured that counts."""

    series_id: str
    sweep_id: str
    cell_id: str
    run_id: str | None
    at: datetime
    verdict: Verdict
    ok: bool
    versions: Versions
    points: tuple[Measured, ...] = ()


@dataclass(frozen=True)
class OutcomeRecord:
    id: int
    series_id: str
    sweep_id: str
    cell_id: str
    run_id: str | None
    at: datetime
    verdict: Verdict
    ok: bool
    versions: Versions


@dataclass(frozen=True)
class PointRecord(Measured):
    """``id`` addresses it. ``baseline``: what it was held against when it came; ``None``: nothing, or not judged."""

    id: int
    series_id: str
    at: datetime
    baseline: float | None
    sweep_id: str
    cell_id: str
    run_id: str | None
    versions: Versions

    @property
    def ratio(self) -> float | None:
        """In units of the baseline of then: 1.1 is a tenth more."""
        return self.value / self.baseline if self.baseline else None


@dataclass(frozen=True)
class Columns:
    """Points of one figure in time order, as plain lists of one length: for many points. ``at`` is Unix time."""

    id: list[int]
    at: list[float]
    value: list[float]
    lowest: list[float]
    highest: list[float]


@dataclass(frozen=True)
class StandingRecord:
    """How a figure of a series stands since its newest point.

    ``lower``, ``upper``: a night beyond them is suspected. ``noise``: standard deviation of a night, as a part of the
    baseline. ``points``: nights that the baseline is made of, from ``from_at`` on; ``missing``: nights until something
    can be said. ``since_…``: the first night that is worse, while there is one.
    """

    series_id: str
    figure: str
    state: Condition
    point_id: int
    at: datetime
    value: float
    baseline: float | None
    lower: float | None
    upper: float | None
    noise: float | None
    ratio: float | None
    points: int
    missing: int
    from_at: datetime
    since_point_id: int | None
    since_at: datetime | None = None
    since_sweep_id: str | None = None


@dataclass(frozen=True)
class BaselineRecord:
    """Somebody accepted that from this point on it is as it should be."""

    id: int
    series_id: str
    figure: str
    point_id: int
    from_at: datetime
    value: float
    reason: str
    author: str
    at: datetime


@dataclass(frozen=True)
class MuteRecord:
    """Until then nothing is told of the series, and it makes no verdict."""

    id: int
    series_id: str
    until: datetime
    reason: str
    author: str
    at: datetime


@dataclass(frozen=True)
class ChangePoint:
    """Where the level of a figure changed: from ``before`` to ``after`` with this point."""

    point_id: int
    at: datetime
    before: float
    after: float

    @property
    def ratio(self) -> float:
        return self.after / self.before if self.before else float("inf")


@dataclass(frozen=True)
class FigureState:
    """``accepted``: the newest baseline that somebody accepted."""

    standing: StandingRecord
    accepted: BaselineRecord | None
    changes: tuple[ChangePoint, ...]


@dataclass(frozen=True)
class SeriesState:
    """``figures``: those that are judged and have points. ``mutes``: newest first, those that are over included."""

    series: SeriesRecord
    figures: Mapping[str, FigureState]
    mutes: tuple[MuteRecord, ...]
    muted_until: datetime | None


@dataclass(frozen=True)
class NewNotice:
    """Something that people should hear of. ``what``: in a sentence. ``before``, ``after``: in the figure's unit."""

    at: datetime
    kind: NoticeKind
    series_id: str | None
    figure: str | None
    sweep_id: str
    cell_id: str
    what: str
    before: float | None = None
    after: float | None = None
    ratio: float | None = None
    since_sweep_id: str | None = None
    versions_before: Versions = field(default_factory=dict)
    versions_after: Versions = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class NoticeRecord(NewNotice):
    """``id`` grows with every notice."""

    id: int


class NotJudged(ValueError):
    """The figure is one that is only shown: there is no baseline to accept."""

    def __init__(self, figure: str, judged: str) -> None:
        super().__init__(f"{figure} is not judged, so it has no baseline; those that are: {judged}")


class ForeignPoint(ValueError):
    """The point belongs to another series or another figure."""

    def __init__(self, point_id: int, series_id: str, figure: str) -> None:
        super().__init__(f"point {point_id} is none of {figure} of series {series_id!r}; take one of its list")


def moment(at: float) -> datetime:
    """Unix time as it is given out."""
    return datetime.fromtimestamp(at, UTC)
