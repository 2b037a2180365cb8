"""Lists, a page at a time: by key, so that a page costs the same wherever it is. No list holds results."""

from __future__ import annotations

from sqlalchemy import Row, Select, select, tuple_
from sqlalchemy.orm import Session

from service.domain.lifecycle import State
from service.domain.verdict import Verdict
from service.store.models import CellRow, EventRow, RunRow
from service.store.records import CellSummary, EventRecord, RunRecord, RunSummary, UnknownRecord
from service.store.repositories.events import event_record
from service.store.repositories.runs import SUMMARY, get_run

_CELL = (
    CellRow.id,
    CellRow.position,
    CellRow.name,
    CellRow.state,
    CellRow.verdict,
    CellRow.ok,
    CellRow.duplicate_of,
    CellRow.started_at,
    CellRow.ended_at,
)


def page_of_cells(session: Session, sweep_id: str, after: int, limit: int) -> list[CellSummary]:
    """Cells of a sweep behind position ``after`` (-1: from the first), in the order of its matrix."""
    query = (
        select(*_CELL)
        .where(CellRow.sweep_id == sweep_id, CellRow.position > after)
        .order_by(CellRow.position)
        .limit(limit)
    )
    return [_cell(row) for row in session.execute(query)]


def page_of_runs(session: Session, sweep_id: str, after: tuple[str, int] | None, limit: int) -> list[RunSummary]:
    """Runs of a sweep by cell id and attempt, those behind the run ``after``."""
    query = select(*SUMMARY).where(RunRow.sweep_id == sweep_id)
    if after is not None:
        query = query.where(tuple_(RunRow.cell_id, RunRow.attempt) > after)
    return _runs(session, query.order_by(RunRow.cell_id, RunRow.attempt).limit(limit))


def page_of_attempts(session: Session, sweep_id: str, cell_id: str, after: int, limit: int) -> list[RunSummary]:
    """Runs of a cell behind attempt ``after`` (0: from the first), oldest first."""
    query = select(*SUMMARY).where(RunRow.sweep_id == sweep_id, RunRow.cell_id == cell_id, RunRow.attempt > after)
    return _runs(session, query.order_by(RunRow.attempt).limit(limit))


def run_summary(session: Session, run_id: str) -> RunSummary:
    """One run without what was asked of it and what it found out."""
    found = _runs(session, select(*SUMMARY).where(RunRow.id == run_id))
    if not found:
        raise UnknownRecord("run", run_id)
    return found[0]


def latest_run(session: Session, sweep_id: str, cell_id: str) -> RunRecord | None:
    """The newest attempt at a cell, if there was one."""
    query = (
        select(RunRow.id)
        .where(RunRow.sweep_id == sweep_id, RunRow.cell_id == cell_id)
        .order_by(RunRow.attempt.desc())
        .limit(1)
    )
    run_id = session.scalars(query).first()
    return None if run_id is None else get_run(session, run_id)


def run_events_after(session: Session, run_id: str, after_id: int, limit: int) -> list[EventRecord]:
    """The oldest ``limit`` events of a run that are newer than ``after_id`` (0: from its start)."""
    query = select(EventRow).where(EventRow.run_id == run_id, EventRow.id > after_id)
    return [event_record(row) for row in session.scalars(query.order_by(EventRow.id).limit(limit))]


def _runs(session: Session, query: Select[*tuple[object, ...]]) -> list[RunSummary]:
    return [_run(row) for row in session.execute(query)]


def _cell(row: Row[*tuple[object, ...]]) -> CellSummary:
    found = row._asdict()
    verdict = found.pop("verdict")
    return CellSummary(
        **{**found, "state": State(found["state"])}, verdict=None if verdict is None else Verdict(verdict)
    )


def _run(row: Row[*tuple[object, ...]]) -> RunSummary:
    found = row._asdict()
    return RunSummary(**{**found, "state": State(found["state"])})
