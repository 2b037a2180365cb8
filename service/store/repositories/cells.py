"""Queries on cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from service.domain.lifecycle import State, step
from service.domain.verdict import Verdict
from service.store.models import CellRow, SweepRow
from service.store.notes import CellEnded, note
from service.store.records import CellRecord, ResolvedCell, SweepState, UnknownRecord
from service.store.repositories.sweeps import abandoned_sweeps
from workers.protocol import AuditedCell, Change, Check, Environment, Patch, PatchState, Problem, Shape


def cells_of(session: Session, sweep_id: str) -> list[CellRecord]:
    """The cells of a sweep in the order of its matrix; none if there is no such sweep."""
    query = select(CellRow).where(CellRow.sweep_id == sweep_id).order_by(CellRow.position)
    return [_record(row) for row in session.scalars(query)]


def get_cell(session: Session, sweep_id: str, cell_id: str) -> CellRecord:
    return _record(_cell(session, sweep_id, cell_id))


def open_cells(session: Session) -> dict[State, int]:
    """How many cells of active sweeps are in each state that has any."""
    query = (
        select(CellRow.state, func.count())
        .join(SweepRow, SweepRow.id == CellRow.sweep_id)
        .where(SweepRow.state == SweepState.ACTIVE)
        .group_by(CellRow.state)
    )
    return {State(state): count for state, count in session.execute(query)}


def record_audit(
    session: Session,
    sweep_id: str,
    cell_id: str,
    audited: AuditedCell,
    fingerprint: str | None,
    environment: Environment | None = None,
) -> None:
    """Store what the audit found, and where. The cell's state is left as it is."""
    _record_audit(_locked(session, sweep_id, cell_id), audited, fingerprint, environment)


def queue_cells(session: Session, sweep_id: str, resolved: Sequence[ResolvedCell]) -> None:
    """Store what the audit found of the cells of a sweep, and queue them: all at once, for there may be many."""
    rows = {row.id: row for row in session.scalars(select(CellRow).where(CellRow.sweep_id == sweep_id))}
    for item in resolved:
        row = rows[item.audited.id]
        _record_audit(row, item.audited, item.fingerprint, item.environment)
        _step(row, State.QUEUED)
        row.duplicate_of = item.duplicate_of
        row.notes = list(item.notes) or None
    session.flush()


def _record_audit(row: CellRow, audited: AuditedCell, fingerprint: str | None, environment: Environment | None) -> None:
    found = audited.model_dump(mode="json")
    row.effective = found["effective"]
    row.changes = found["changes"]
    row.patches = found["patches"]
    row.shape = found["shape"]
    row.problems = found["problems"]
    row.fingerprint = fingerprint
    row.environment = None if environment is None else environment.model_dump(mode="json")


def set_cell_state(session: Session, sweep_id: str, cell_id: str, state: State) -> None:
    """Take one step of the lifecycle, and note when the cell first ran and when it ended.

    Raises:
        InvalidTransition: if the lifecycle has no such step.
    """
    _step(_locked(session, sweep_id, cell_id), state)


def set_duplicate(session: Session, sweep_id: str, cell_id: str, of: str) -> None:
    """Let a cell share the result of cell ``of`` of the same sweep."""
    _cell(session, sweep_id, of)
    _locked(session, sweep_id, cell_id).duplicate_of = of


def conclude_cell(
    session: Session,
    sweep_id: str,
    cell_id: str,
    verdict: Verdict,
    ok: bool,
    reasons: Sequence[str],
    state: State,
) -> None:
    """End a cell in ``state`` with its verdict.

    Raises:
        InvalidTransition: if the lifecycle has no such step; the verdict is then not stored either.
    """
    row = _locked(session, sweep_id, cell_id)
    _step(row, state)
    row.verdict = verdict
    row.ok = ok
    row.reasons = list(reasons)
    note(session, CellEnded(sweep_id, cell_id, row.name, state, verdict, ok))


def ask_again(session: Session, sweep_id: str, cell_id: str) -> None:
    """Queue an ended cell again and forget its verdict. What its runs found stays.

    Raises:
        InvalidTransition: if it has not ended.
    """
    row = _locked(session, sweep_id, cell_id)
    _step(row, State.QUEUED)
    row.verdict = row.ok = row.started_at = row.ended_at = None
    row.reasons = []


def has_open_cells(session: Session, sweep_id: str) -> bool:
    """Is there a cell that has not ended?"""
    still = [state for state in State if not state.ended]
    query = select(CellRow.id).where(CellRow.sweep_id == sweep_id, CellRow.state.in_(still)).limit(1)
    return session.scalars(query).first() is not None


def duplicates_of(session: Session, sweep_id: str, cell_id: str) -> list[CellRecord]:
    """The cells that share the result of ``cell_id``."""
    query = (
        select(CellRow).where(CellRow.sweep_id == sweep_id, CellRow.duplicate_of == cell_id).order_by(CellRow.position)
    )
    return [_record(row) for row in session.scalars(query)]


def abandoned_cells(session: Session, owner_alive: Callable[[str], bool]) -> list[tuple[str, str]]:
    """(sweep id, cell id) of every cell that has not ended and whose controller process is gone."""
    ended = [state for state in State if state.ended]
    query = (
        select(CellRow.sweep_id, CellRow.id)
        .where(CellRow.sweep_id.in_(abandoned_sweeps(session, owner_alive)), CellRow.state.not_in(ended))
        .order_by(CellRow.sweep_id, CellRow.position)
    )
    return [(sweep_id, cell_id) for sweep_id, cell_id in session.execute(query)]


def _step(row: CellRow, state: State) -> None:
    row.state = step(f"cell {row.name!r} of sweep {row.sweep_id}", State(row.state), state)
    if state is State.RUNNING and row.started_at is None:
        row.started_at = datetime.now(UTC)
    if state.ended:
        row.ended_at = datetime.now(UTC)


def _locked(session: Session, sweep_id: str, cell_id: str) -> CellRow:
    return _cell(session, sweep_id, cell_id, lock=True)


def _cell(session: Session, sweep_id: str, cell_id: str, lock: bool = False) -> CellRow:
    row = session.get(CellRow, (sweep_id, cell_id), with_for_update=True if lock else None)
    if row is None:
        raise UnknownRecord("cell", f"{sweep_id}/{cell_id}")
    return row


def _record(row: CellRow) -> CellRecord:
    return CellRecord(
        sweep_id=row.sweep_id,
        id=row.id,
        position=row.position,
        name=row.name,
        requested=row.requested,
        expect=tuple(Verdict(verdict) for verdict in row.expect),
        checks=tuple(Check(check) for check in row.checks),
        state=State(row.state),
        effective=row.effective,
        changes=tuple(Change.model_validate(change) for change in row.changes),
        patches={Patch(patch): PatchState(state) for patch, state in row.patches.items()},
        shape=None if row.shape is None else Shape.model_validate(row.shape),
        problems=tuple(Problem.model_validate(problem) for problem in row.problems),
        notes=tuple(row.notes or ()),
        environment=None if row.environment is None else Environment.model_validate(row.environment),
        fingerprint=row.fingerprint,
        duplicate_of=row.duplicate_of,
        verdict=None if row.verdict is None else Verdict(row.verdict),
        ok=row.ok,
        reasons=tuple(row.reasons),
        started_at=row.started_at,
        ended_at=row.ended_at,
    )
