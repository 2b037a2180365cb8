"""Queries on sweeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from sqlalchemy import ColumnElement, ScalarSelect, func, select
from sqlalchemy.orm import Session

from service.domain.cell import Cell
from service.domain.lifecycle import State
from service.store.models import CellRow, EventRow, SweepRow
from service.store.queue_models import QueueRow
from service.store.queue_records import SHARED
from service.store.records import NewSweep, SweepRecord, SweepState, SweepSummary, UnknownRecord
from service.store.repositories.events import ARTIFACTS_REMOVED
from workers.protocol import Environment


def create_sweep(session: Session, sweep: NewSweep, cells: Sequence[Cell]) -> None:
    """Store a sweep and its cells, which wait for their audit."""
    session.add(
        SweepRow(
            id=sweep.id,
            name=sweep.name,
            created_at=sweep.created_at,
            state=SweepState.ACTIVE,
            owner=sweep.owner,
            matrix=sweep.matrix,
            timeouts=sweep.timeouts,
        )
    )
    session.flush()
    session.add_all(_new_cell(sweep.id, position, cell) for position, cell in enumerate(cells))
    session.flush()


def get_sweep(session: Session, sweep_id: str) -> SweepRecord:
    row = _sweep(session, sweep_id)
    return SweepRecord(
        id=row.id,
        name=row.name,
        created_at=row.created_at,
        ended_at=row.ended_at,
        state=SweepState(row.state),
        owner=row.owner,
        matrix=row.matrix,
        timeouts=row.timeouts,
        environment=None if row.environment is None else Environment.model_validate(row.environment),
        artifacts_removed_at=_artifacts_removed_at(session, sweep_id),
    )


def _artifacts_removed_at(session: Session, sweep_id: str) -> datetime | None:
    query = select(func.min(EventRow.at)).where(EventRow.sweep_id == sweep_id, EventRow.kind == ARTIFACTS_REMOVED)
    at = session.scalars(query).one()
    return None if at is None else datetime.fromtimestamp(at, UTC)


def list_sweeps(session: Session, limit: int, before: str | None = None) -> list[SweepSummary]:
    """Newest first, by id; with ``before`` only those older than that sweep."""
    query = select(
        SweepRow.id,
        SweepRow.name,
        SweepRow.created_at,
        SweepRow.ended_at,
        SweepRow.state,
        _cells().label("cells"),
        _cells(CellRow.ok.is_(True)).label("ok"),
        _cells(CellRow.ok.is_(False)).label("unexpected"),
    )
    if before is not None:
        query = query.where(SweepRow.id < before)
    query = query.order_by(SweepRow.id.desc()).limit(limit)
    return [
        SweepSummary(
            id=row.id,
            name=row.name,
            created_at=row.created_at,
            ended_at=row.ended_at,
            state=SweepState(row.state),
            cells=row.cells,
            ok=row.ok,
            unexpected=row.unexpected,
        )
        for row in session.execute(query)
    ]


def _cells(*conditions: ColumnElement[bool]) -> ScalarSelect[int]:
    """How many cells of each sweep are so. Counted in an index alone, sweep by sweep: rows of cells are large."""
    return select(func.count()).where(CellRow.sweep_id == SweepRow.id, *conditions).scalar_subquery()


def set_sweep_environment(session: Session, sweep_id: str, environment: Environment) -> None:
    """Record where the sweep was audited."""
    _sweep(session, sweep_id).environment = environment.model_dump(mode="json")


def end_sweep(session: Session, sweep_id: str) -> None:
    """Mark a sweep as ended. Ending it again changes nothing."""
    row = _sweep(session, sweep_id)
    if row.state == SweepState.ACTIVE:
        row.state = SweepState.ENDED
        row.ended_at = datetime.now(UTC)


def reopen_sweep(session: Session, sweep_id: str) -> None:
    """Mark a sweep as active again, as some of its cells are."""
    row = _sweep(session, sweep_id)
    row.state = SweepState.ACTIVE
    row.ended_at = None


def abandoned_sweeps(session: Session, owner_alive: Callable[[str], bool]) -> list[str]:
    """Active sweeps whose controller process is gone and that no other one goes on with, oldest first."""
    shared = select(QueueRow.sweep_id).where(QueueRow.queue == SHARED)
    query = (
        select(SweepRow.id, SweepRow.owner)
        .where(SweepRow.state == SweepState.ACTIVE, SweepRow.id.not_in(shared))
        .order_by(SweepRow.id)
    )
    sweeps = session.execute(query).all()
    dead = {owner for owner in {owner for _, owner in sweeps} if not owner_alive(owner)}
    return [sweep_id for sweep_id, owner in sweeps if owner in dead]


def _sweep(session: Session, sweep_id: str) -> SweepRow:
    row = session.get(SweepRow, sweep_id)
    if row is None:
        raise UnknownRecord("sweep", sweep_id)
    return row


def _new_cell(sweep_id: str, position: int, cell: Cell) -> CellRow:
    return CellRow(
        sweep_id=sweep_id,
        id=cell.id,
        position=position,
        name=cell.name,
        requested=dict(cell.requested),
        expect=list(cell.expect),
        checks=list(cell.checks),
        state=State.AUDITING,
        changes=[],
        patches={},
        problems=[],
        reasons=[],
    )
