"""Queries on the history of a series as pages draw it: as many dots as a screen has room for, however many points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, func, select
from sqlalchemy.orm import Session

from service.store.series_models import NumberRow, OutcomeRow, PointRow

DOTS = 400
"""Points of a figure that are drawn one by one. Of more, neighbours are drawn as one. So many numbers are stored."""

SHARED = 2
"""Figures that have so many dots. Of more, each has a part of theirs: a chart says no more for being full."""

_ENDS = (func.min, func.max)

_LEAST = 1e-6
"""Seconds by which a dot is wider than its part, lest the last point fall out by rounding. Times are no finer."""


@dataclass(frozen=True)
class Stretch:
    """A part of a history, both ends in it; ``None`` is open."""

    since: datetime | None = None
    until: datetime | None = None

    @property
    def seconds(self) -> tuple[float | None, float | None]:
        """Its ends as Unix time."""
        since, until = (None if end is None else end.timestamp() for end in (self.since, self.until))
        return since, until


class Drawn(NamedTuple):
    """A dot: ``points`` that lie between ``begin`` and ``end``.

    ``value``: their mean; ``lowest``, ``highest``: of all their starts. ``outcome``: id of that of the newest of them.
    ``sweep_id``, ``cell_id``: of one alone. A tuple, as a page makes thousands: a dataclass takes four times as long.
    """

    begin: datetime
    end: datetime
    value: float
    lowest: float
    highest: float
    points: int
    outcome: int
    sweep_id: str | None = None
    cell_id: str | None = None


@dataclass(frozen=True)
class VersionChange:
    """From ``at`` on the series was measured with other versions."""

    at: datetime
    before: dict[str, Any]
    after: dict[str, Any]


def dots(session: Session, series_id: str, figure: str, stretch: Stretch, figures: int = 1) -> list[Drawn]:
    """A figure's points in time order; beyond :data:`DOTS` of them neighbours in time as one, none left out.

    ``figures``: how many are drawn together.
    """
    most = max(1, min(DOTS, DOTS * SHARED // figures))
    where = [PointRow.series_id == series_id, PointRow.figure == figure, *within(PointRow.at, *stretch.seconds)]
    # More than can be drawn is all that has to be known of their number.
    some = select(PointRow.id).where(*where).limit(most + 1).subquery()
    # Each by itself is one step along the index.
    asked = [select(func.count()).select_from(some), *(select(end(PointRow.at)).where(*where) for end in _ENDS)]
    points, begin, last = session.execute(select(*(one.scalar_subquery() for one in asked))).one()
    if points <= most:
        return _single(session, where)
    return _together(session, where, begin, last, most)


def _single(session: Session, where: Sequence[ColumnElement[bool]]) -> list[Drawn]:
    columns = (PointRow.at, PointRow.value, PointRow.lowest, PointRow.highest)
    query = (
        select(*columns, OutcomeRow.id, OutcomeRow.sweep_id, OutcomeRow.cell_id)
        .join(OutcomeRow, OutcomeRow.id == PointRow.outcome_id)
        .where(*where)
        .order_by(PointRow.at)
    )
    return [
        Drawn(_moment(at), _moment(at), value, lowest, highest, 1, outcome, sweep_id, cell_id)
        for at, value, lowest, highest, outcome, sweep_id, cell_id in session.execute(query)
    ]


def _together(
    session: Session, where: Sequence[ColumnElement[bool]], begin: float, last: float, most: int
) -> list[Drawn]:
    """Each dot stands for the ``most``-th part of the time; where all points have one time, they are one dot."""
    query = select(
        func.min(PointRow.at),
        func.max(PointRow.at),
        func.avg(PointRow.value),
        func.min(PointRow.lowest),
        func.max(PointRow.highest),
        func.count(),
        func.max(PointRow.outcome_id),
    ).where(*where)
    width = (last - begin) / most + _LEAST
    number: ColumnElement[Any] = NumberRow.number.expression
    if session.get_bind().dialect.name == "sqlite":
        # It sorts what it groups, unless it finds the points in the order of their dots.
        inside = (PointRow.at >= begin + number * width, PointRow.at < begin + (number + 1) * width)
        query = query.join(NumberRow, and_(number < most, *inside))
    else:
        # PostgreSQL would do that join by comparing all with all, until it has statistics of its tables.
        number = func.floor((PointRow.at - begin) / width)
    return [
        Drawn(_moment(first), _moment(last), value, lowest, highest, points, outcome)
        for first, last, value, lowest, highest, points, outcome in session.execute(
            query.group_by(number).order_by(number)
        )
    ]


def version_changes(session: Session, outcomes: Iterable[int]) -> list[VersionChange]:
    """Between which of these outcomes the series began to be measured with other versions, oldest first."""
    columns = select(OutcomeRow.at, OutcomeRow.versions)
    query = columns.where(OutcomeRow.id.in_(sorted(set(outcomes)))).order_by(OutcomeRow.at, OutcomeRow.id)
    rows = session.execute(query).all()
    return [
        VersionChange(later.at, earlier.versions, later.versions)
        for earlier, later in pairwise(rows)
        if earlier.versions != later.versions
    ]


def within(column: Any, since: Any, until: Any) -> list[ColumnElement[bool]]:
    """That ``column`` lies between the two, both in it; ``None`` is open."""
    ends = (None if since is None else column >= since, None if until is None else column <= until)
    return [end for end in ends if end is not None]


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
