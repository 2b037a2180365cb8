"""Queries for pages that show many cells. Evidence stays in the database; figures are taken out of it there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Row, Select, func, select
from sqlalchemy.orm import Session

from service.domain.lifecycle import State, SweepState
from service.domain.verdict import Verdict
from service.store.glance_records import CellGlance, RunFigures, RunningCell
from service.store.models import CellRow, EventRow, RunRow, SweepRow

_CELL = (
    CellRow.sweep_id,
    CellRow.id,
    CellRow.name,
    CellRow.requested,
    CellRow.expect,
    CellRow.state,
    CellRow.verdict,
    CellRow.ok,
    CellRow.duplicate_of,
    CellRow.reasons,
    CellRow.started_at,
    CellRow.ended_at,
)

_FIGURES = (
    RunRow.id,
    RunRow.evidence[("compile", "cold", "total_s")].as_float().label("cold_s"),
    RunRow.evidence[("compile", "warm", "total_s")].as_float().label("warm_s"),
    RunRow.evidence[("compile", "cold", "repeats")].as_json().label("cold_repeats"),
    RunRow.evidence[("compile", "warm", "repeats")].as_json().label("warm_repeats"),
    RunRow.evidence[("exercised", "sequence_parallelism", "matched")].as_integer().label("matched"),
    RunRow.evidence[("exercised", "sequence_parallelism", "expected")].as_integer().label("expected"),
)


def cells_at_a_glance(session: Session, sweep_id: str) -> list[CellGlance]:
    """The cells of a sweep in the order of its matrix; none if there is no such sweep."""
    query = select(*_CELL).where(CellRow.sweep_id == sweep_id).order_by(CellRow.position)
    runs = _newest_runs(session, sweep_id)
    return [replace(cell, run_id=runs.get(cell.duplicate_of or cell.id)) for cell in _cells(session, query)]


def cells_not_ok(session: Session, sweep_ids: Collection[str], limit: int) -> list[CellGlance]:
    """Ended cells of these sweeps whose verdict was not expected, newest sweep first."""
    query = select(*_CELL).where(CellRow.sweep_id.in_(sweep_ids), CellRow.ok.is_(False))
    return _cells(session, query.order_by(CellRow.sweep_id.desc(), CellRow.position).limit(limit))


def figures_of(session: Session, run_ids: Sequence[str]) -> dict[str, RunFigures]:
    """What the runs measured, by their ids. A run without evidence has measured nothing."""
    query = select(*_FIGURES).where(RunRow.id.in_(run_ids))
    return {row.id: _figures(row) for row in session.execute(query)}


def newest_event(session: Session, sweep_id: str) -> int:
    """Id of the newest event of a sweep; 0 while there is none."""
    return session.scalars(select(func.max(EventRow.id)).where(EventRow.sweep_id == sweep_id)).one() or 0


def running_cells(session: Session, limit: int) -> list[RunningCell]:
    """Cells that run now, those of the oldest sweep first."""
    query = (
        select(CellRow.sweep_id, SweepRow.name.label("sweep_name"), CellRow.id, CellRow.name, CellRow.started_at)
        .join(SweepRow, SweepRow.id == CellRow.sweep_id)
        .where(SweepRow.state == SweepState.ACTIVE, CellRow.state == State.RUNNING)
        .order_by(CellRow.sweep_id, CellRow.position)
        .limit(limit)
    )
    return [RunningCell(**row._asdict()) for row in session.execute(query)]


def _newest_runs(session: Session, sweep_id: str) -> dict[str, str]:
    """The newest attempt at each cell of a sweep that has one."""
    query = select(RunRow.cell_id, RunRow.id).where(RunRow.sweep_id == sweep_id).order_by(RunRow.attempt)
    return {row.cell_id: row.id for row in session.execute(query)}


def _cells(session: Session, query: Select[*tuple[Any, ...]]) -> list[CellGlance]:
    return [_cell(row) for row in session.execute(query)]


def _cell(row: Row[*tuple[Any, ...]]) -> CellGlance:
    return CellGlance(
        sweep_id=row.sweep_id,
        id=row.id,
        name=row.name,
        requested=row.requested,
        expect=tuple(Verdict(verdict) for verdict in row.expect),
        state=State(row.state),
        verdict=None if row.verdict is None else Verdict(row.verdict),
        ok=row.ok,
        duplicate_of=row.duplicate_of,
        reason=row.reasons[0] if row.reasons else None,
        started_at=row.started_at,
        ended_at=row.ended_at,
    )


def _figures(row: Row[*tuple[Any, ...]]) -> RunFigures:
    return RunFigures(
        cold_s=row.cold_s,
        warm_s=row.warm_s,
        cold_repeats=tuple(row.cold_repeats or ()),
        warm_repeats=tuple(row.warm_repeats or ()),
        matched=row.matched,
        expected=row.expected,
    )
