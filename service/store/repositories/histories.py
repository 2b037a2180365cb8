"""The nights of a series as pages list them: each outcome with its figures, those without a point included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.store.repositories.trends import Stretch, within
from service.store.series_models import OutcomeRow, PointRow

_NEWEST = 10
"""Outcomes that are looked at to learn which figures a series has."""


@dataclass(frozen=True)
class HistoryPoint:
    """A figure of one outcome, in a table. ``id``: of the point."""

    id: int
    value: float
    lowest: float
    highest: float
    repeats: int


@dataclass(frozen=True)
class HistoryRow:
    """One outcome with the figures that were asked for and that it has."""

    at: datetime
    sweep_id: str
    cell_id: str
    verdict: str
    ok: bool
    versions: dict[str, Any]
    figures: dict[str, HistoryPoint]


def figures_of(session: Session, series_id: str) -> list[str]:
    """Names of the figures that the newest outcomes of a series have."""
    newest = (
        select(OutcomeRow.id)
        .join(PointRow, PointRow.outcome_id == OutcomeRow.id)
        .where(OutcomeRow.series_id == series_id)
        .order_by(OutcomeRow.at.desc())
        .limit(_NEWEST)
    )
    return sorted(session.scalars(select(PointRow.figure).where(PointRow.outcome_id.in_(newest)).distinct()))


def history(session: Session, series_id: str, figures: Sequence[str], stretch: Stretch, limit: int) -> list[HistoryRow]:
    """The newest ``limit`` outcomes of the stretch, newest first, those without a point included."""
    columns = (OutcomeRow.at, OutcomeRow.sweep_id, OutcomeRow.cell_id, OutcomeRow.verdict, OutcomeRow.ok)
    rows = session.execute(
        select(OutcomeRow.id, *columns, OutcomeRow.versions)
        .where(OutcomeRow.series_id == series_id, *within(OutcomeRow.at, stretch.since, stretch.until))
        .order_by(OutcomeRow.at.desc(), OutcomeRow.id.desc())
        .limit(limit)
    ).all()
    found = _points_of(session, [row.id for row in rows], figures)
    return [
        HistoryRow(row.at, row.sweep_id, row.cell_id, row.verdict, row.ok, row.versions, found[row.id]) for row in rows
    ]


def _points_of(session: Session, outcomes: Sequence[int], figures: Sequence[str]) -> dict[int, dict[str, HistoryPoint]]:
    """By outcome and figure."""
    found: dict[int, dict[str, HistoryPoint]] = {outcome: {} for outcome in outcomes}
    columns = (PointRow.id, PointRow.value, PointRow.lowest, PointRow.highest, PointRow.repeats)
    query = select(PointRow.outcome_id, PointRow.figure, *columns).where(PointRow.outcome_id.in_(outcomes))
    for row in session.execute(query.where(PointRow.figure.in_(figures))) if found else ():
        found[row.outcome_id][row.figure] = HistoryPoint(row.id, row.value, row.lowest, row.highest, row.repeats)
    return found
