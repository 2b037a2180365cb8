"""Points of series: what the figures of each night were, and what they were held against."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, Select, select, tuple_
from sqlalchemy.orm import Session

from service.domain.figures import JUDGED
from service.store.records import UnknownRecord
from service.store.series_models import OutcomeRow, PointRow
from service.store.series_records import (
    Columns,
    PointRecord,
    moment,
)

_POINT = (
    PointRow.id,
    PointRow.series_id,
    PointRow.figure,
    PointRow.at,
    PointRow.value,
    PointRow.lowest,
    PointRow.highest,
    PointRow.repeats,
    PointRow.baseline,
    PointRow.outcome_id,
)


def points_of(
    session: Session,
    series_id: str,
    figures: Sequence[str] | None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int | None = None,
    after: tuple[float, str, int] | None = None,
) -> list[PointRecord]:
    """Points in time order, those of one time by figure; of all figures where none are named.

    ``since`` is included and ``until`` is not. ``limit``: the oldest so many, of those behind the point ``after``: its
    Unix time, figure and id.
    """
    query = _within(select(*_POINT).where(PointRow.series_id == series_id), figures, since, until)
    if after is not None:
        query = query.where(tuple_(PointRow.at, PointRow.figure, PointRow.id) > after)
    rows = session.execute(query.order_by(PointRow.at, PointRow.figure, PointRow.id).limit(limit)).all()
    return _points(session, series_id, rows)


def columns_of(
    session: Session, series_id: str, figure: str, since: datetime | None = None, until: datetime | None = None
) -> Columns:
    """The same of one figure, as plain lists: a tenth of the time where there are very many."""
    wanted = select(PointRow.id, PointRow.at, PointRow.value, PointRow.lowest, PointRow.highest)
    query = _within(wanted.where(PointRow.series_id == series_id), [figure], since, until)
    rows = session.execute(query.order_by(PointRow.at, PointRow.id)).all()
    columns: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], [], []]
    return Columns(*columns)


def get_point(session: Session, series_id: str, point_id: int) -> PointRecord:
    row = session.execute(select(*_POINT).where(PointRow.id == point_id, PointRow.series_id == series_id)).one_or_none()
    if row is None:
        raise UnknownRecord("point", str(point_id))
    return _points(session, series_id, [row])[0]


def points_of_sweep(session: Session, sweep_id: str, figures: Sequence[str] = JUDGED) -> dict[str, list[PointRecord]]:
    """By cell id, what its figures were and what they were held against: a change against the baseline is ``ratio``."""
    query = (
        select(*_POINT, OutcomeRow.cell_id, OutcomeRow.sweep_id, OutcomeRow.run_id, OutcomeRow.versions)
        .join(OutcomeRow, OutcomeRow.id == PointRow.outcome_id)
        .where(OutcomeRow.sweep_id == sweep_id, PointRow.figure.in_(figures))
        .order_by(OutcomeRow.cell_id, PointRow.figure)
    )
    found: dict[str, list[PointRecord]] = {}
    for row in session.execute(query):
        found.setdefault(row.cell_id, []).append(_point(row, row))
    return found


def _within(
    query: Select[*tuple[Any, ...]], figures: Sequence[str] | None, since: datetime | None, until: datetime | None
) -> Select[*tuple[Any, ...]]:
    if figures is not None:
        query = query.where(PointRow.figure.in_(figures))
    if since is not None:
        query = query.where(PointRow.at >= since.timestamp())
    if until is not None:
        query = query.where(PointRow.at < until.timestamp())
    return query


def _points(session: Session, series_id: str, rows: Sequence[Row[*tuple[Any, ...]]]) -> list[PointRecord]:
    """An outcome has many points: it is read once."""
    wanted = select(OutcomeRow.id, OutcomeRow.sweep_id, OutcomeRow.cell_id, OutcomeRow.run_id, OutcomeRow.versions)
    query = wanted.where(OutcomeRow.series_id == series_id)
    ids = {row.outcome_id for row in rows}
    if len(ids) <= 100:
        query = query.where(OutcomeRow.id.in_(ids))
    outcomes = {row.id: row for row in session.execute(query)}
    return [_point(row, outcomes[row.outcome_id]) for row in rows]


def _point(row: Row[*tuple[Any, ...]], outcome: Row[*tuple[Any, ...]]) -> PointRecord:
    return PointRecord(
        figure=row.figure,
        value=row.value,
        lowest=row.lowest,
        highest=row.highest,
        repeats=row.repeats,
        id=row.id,
        series_id=row.series_id,
        at=moment(row.at),
        baseline=row.baseline,
        sweep_id=outcome.sweep_id,
        cell_id=outcome.cell_id,
        run_id=outcome.run_id,
        versions=outcome.versions,
    )
