"""Queries on events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from service.domain.lifecycle import State
from service.store.models import CellRow, EventRow
from service.store.notes import EventsStored, note
from service.store.records import EventRecord, LivePhase, NewEvent
from workers.protocol import Role

ARTIFACTS_REMOVED = "artifacts-removed"


def add_events(session: Session, events: Sequence[NewEvent]) -> None:
    """Append events, in the order given."""
    if events:
        session.execute(insert(EventRow), [asdict(event) for event in events])
        note(session, EventsStored(events))


def note_artifacts_removed(session: Session, sweep_id: str, at: float) -> None:
    """Record that the files of a sweep are gone since ``at``, Unix time. What the store has of it stays."""
    add_events(session, [NewEvent(sweep_id, at, ARTIFACTS_REMOVED)])


def events_after(session: Session, sweep_id: str, after_id: int, limit: int) -> list[EventRecord]:
    """The oldest ``limit`` events of a sweep that are newer than ``after_id`` (0: from its start)."""
    query = (
        select(EventRow).where(EventRow.sweep_id == sweep_id, EventRow.id > after_id).order_by(EventRow.id).limit(limit)
    )
    return [event_record(row) for row in session.scalars(query)]


def latest_phases(session: Session, sweep_id: str) -> list[LivePhase]:
    """What each rank of each running cell does now, by cell and rank.

    A rank whose newest phase belongs to an earlier arm or attempt than its cell's newest is left out: it is over.
    """
    running = select(CellRow.id).where(CellRow.sweep_id == sweep_id, CellRow.state == State.RUNNING)
    newest = (
        select(func.max(EventRow.id).label("id"))
        .where(EventRow.sweep_id == sweep_id, EventRow.kind == "phase", EventRow.cell_id.in_(running))
        .group_by(EventRow.cell_id, EventRow.rank)
        .subquery()
    )
    query = (
        select(EventRow)
        .join(newest, EventRow.id == newest.c.id)
        .join(CellRow, (CellRow.sweep_id == EventRow.sweep_id) & (CellRow.id == EventRow.cell_id))
        .order_by(CellRow.position, EventRow.rank, EventRow.id)
    )
    return [_phase(row) for row in _of_newest_arm(session.scalars(query).all())]


def _of_newest_arm(rows: Sequence[EventRow]) -> Iterable[EventRow]:
    newest: dict[str | None, EventRow] = {}
    for row in rows:
        if row.cell_id not in newest or newest[row.cell_id].id < row.id:
            newest[row.cell_id] = row
    current = {cell_id: (row.run_id, row.arm) for cell_id, row in newest.items()}
    return (row for row in rows if (row.run_id, row.arm) == current[row.cell_id])


def _phase(row: EventRow) -> LivePhase:
    return LivePhase(
        cell_id=str(row.cell_id), arm=_role(row.arm), rank=row.rank, name=str(row.data.get("name", "")), at=row.at
    )


def event_record(row: EventRow) -> EventRecord:
    return EventRecord(
        id=row.id,
        sweep_id=row.sweep_id,
        at=row.at,
        kind=row.kind,
        cell_id=row.cell_id,
        run_id=row.run_id,
        arm=_role(row.arm),
        rank=row.rank,
        data=row.data,
    )


def _role(arm: str | None) -> Role | None:
    return None if arm is None else Role(arm)
