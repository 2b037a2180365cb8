"""Queries on runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, Text, cast, func, select
from sqlalchemy.orm import Session

from service.domain.lifecycle import Level, State, step
from service.store.models import RunRow
from service.store.notes import RunEnded, note
from service.store.records import RunRecord, UnknownRecord
from workers.protocol import Evidence, RunSpec

SUMMARY = (
    RunRow.id,
    RunRow.sweep_id,
    RunRow.cell_id,
    RunRow.attempt,
    RunRow.state,
    RunRow.created_at,
    RunRow.started_at,
    RunRow.ended_at,
    RunRow.failure,
)
"""All but what is large."""

_ALL = (
    *SUMMARY,
    # As text: evidence is most of what the store holds, and its model reads text much sooner than what was made of it.
    cast(RunRow.spec, Text).label("spec"),
    cast(RunRow.evidence, Text).label("evidence"),
)


def create_run(session: Session, sweep_id: str, cell_id: str, spec: RunSpec, state: State = State.QUEUED) -> RunRecord:
    """Store the next attempt at a cell; its id is ``spec.run_id``."""
    row = RunRow(
        id=spec.run_id,
        sweep_id=sweep_id,
        cell_id=cell_id,
        attempt=_attempts(session, sweep_id, cell_id) + 1,
        state=state,
        created_at=datetime.now(UTC),
        spec=spec.model_dump(mode="json"),
    )
    session.add(row)
    session.flush()
    return get_run(session, row.id)


def get_run(session: Session, run_id: str) -> RunRecord:
    row = session.execute(select(*_ALL).where(RunRow.id == run_id)).one_or_none()
    if row is None:
        raise UnknownRecord("run", run_id)
    return _record(row)


def runs_of(session: Session, sweep_id: str, cell_id: str) -> list[RunRecord]:
    """Every attempt at a cell, the first one first."""
    query = select(*_ALL).where(RunRow.sweep_id == sweep_id, RunRow.cell_id == cell_id).order_by(RunRow.attempt)
    return [_record(row) for row in session.execute(query)]


def latest_runs(session: Session, sweep_id: str) -> list[RunRecord]:
    """The newest attempt at each cell of a sweep that has one."""
    newest = (
        select(RunRow.cell_id, func.max(RunRow.attempt).label("attempt"))
        .where(RunRow.sweep_id == sweep_id)
        .group_by(RunRow.cell_id)
        .subquery()
    )
    query = (
        select(*_ALL)
        .join(newest, (RunRow.cell_id == newest.c.cell_id) & (RunRow.attempt == newest.c.attempt))
        .where(RunRow.sweep_id == sweep_id)
        .order_by(RunRow.created_at, RunRow.id)
    )
    return [_record(row) for row in session.execute(query)]


def set_run_state(session: Session, run_id: str, state: State) -> None:
    """Take one step of the lifecycle, and note when the run started and ended.

    Raises:
        InvalidTransition: if the lifecycle has no such step.
    """
    _step(_locked(session, run_id), state)


def finish_run(
    session: Session, run_id: str, state: State, evidence: Evidence | None, failure: str | None = None
) -> None:
    """End a run in ``state`` with what it found out, or with why it found nothing.

    Raises:
        InvalidTransition: if the lifecycle has no such step; the evidence is then not stored either.
    """
    row = _locked(session, run_id)
    _step(row, state)
    row.evidence = None if evidence is None else evidence.model_dump(mode="json")
    row.failure = failure
    note(session, RunEnded(row.sweep_id, row.cell_id, run_id, state, evidence, failure))


def _attempts(session: Session, sweep_id: str, cell_id: str) -> int:
    query = select(func.count()).select_from(RunRow).where(RunRow.sweep_id == sweep_id, RunRow.cell_id == cell_id)
    return session.scalars(query).one()


def _step(row: RunRow, state: State) -> None:
    row.state = step(f"run {row.id}", State(row.state), state, Level.RUN)
    if state is State.RUNNING and row.started_at is None:
        row.started_at = datetime.now(UTC)
    if state.ended:
        row.ended_at = datetime.now(UTC)


def _locked(session: Session, run_id: str) -> RunRow:
    row = session.get(RunRow, run_id, with_for_update=True)
    if row is None:
        raise UnknownRecord("run", run_id)
    return row


def _record(row: Row[*tuple[Any, ...]]) -> RunRecord:
    return RunRecord(
        id=row.id,
        sweep_id=row.sweep_id,
        cell_id=row.cell_id,
        attempt=row.attempt,
        state=State(row.state),
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        spec=RunSpec.model_validate_json(row.spec),
        evidence=None if row.evidence is None else Evidence.model_validate_json(row.evidence),
        failure=row.failure,
    )
