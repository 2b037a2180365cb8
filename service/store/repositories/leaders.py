"""Queries on who leads. Every change is made only to what was seen before, so one of two who try it fails."""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import CursorResult, delete, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from service.store.queue_models import LeaderRow
from service.store.queue_records import LeaderRecord


def get_leader(session: Session, name: str) -> LeaderRecord | None:
    row = session.get(LeaderRow, name)
    return None if row is None else LeaderRecord(row.owner, row.beat)


def lead(session: Session, name: str, owner: str, seen: LeaderRecord | None) -> LeaderRecord | None:
    """Lead, or go on leading, if the leader is still as it was ``seen``; what the next change has to have seen."""
    if seen is None:
        return _first(session, name, owner)
    beat = seen.beat + 1
    change = (
        update(LeaderRow)
        .where(LeaderRow.name == name, LeaderRow.owner == seen.owner, LeaderRow.beat == seen.beat)
        .values(owner=owner, beat=beat)
        .execution_options(synchronize_session=False)
    )
    done = cast("CursorResult[Any]", session.execute(change)).rowcount
    return LeaderRecord(owner, beat) if done else None


def resign(session: Session, name: str, owner: str) -> None:
    """Let others lead at once."""
    session.execute(delete(LeaderRow).where(LeaderRow.name == name, LeaderRow.owner == owner))


def _first(session: Session, name: str, owner: str) -> LeaderRecord | None:
    try:
        with session.begin_nested():
            session.add(LeaderRow(name=name, owner=owner, beat=0))
    except IntegrityError:
        return None
    return LeaderRecord(owner, 0)
