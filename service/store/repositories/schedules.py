"""Queries on schedules, as people write and read them. What they fire is in ``fires``."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from service.domain import cron
from service.domain.schedule import Missed
from service.store.records import UnknownRecord
from service.store.schedule_models import ScheduleRow
from service.store.schedule_records import (
    NameTaken,
    ScheduleFields,
    ScheduleRecord,
    ScheduleSummary,
    VersionConflict,
)

_SHOWN = tuple(field.name for field in fields(ScheduleSummary))
"""Columns of a summary, and of a record with the matrix besides; they have the same names."""


def create_schedule(
    session: Session, name: str, written: ScheduleFields, now: datetime, key_id: str | None = None
) -> ScheduleRecord:
    """Store a schedule, which waits for its first time after ``now``. ``key_id``: the API key that makes it.

    Raises:
        InvalidTime: its cron expression or time zone cannot be used.
        NameTaken: there is one of this name.
    """
    row = ScheduleRow(name=name, version=1, created_at=now, served_until=now, key_id=key_id)
    _write(row, written, now)
    session.add(row)
    try:
        session.flush()
    except IntegrityError as error:
        raise NameTaken(name) from error
    return _record(row)


def get_schedule(session: Session, name: str) -> ScheduleRecord:
    return _record(_schedule(session, name))


def list_schedules(session: Session, limit: int, after: str | None = None) -> list[ScheduleSummary]:
    """By name, without their matrices; with ``after`` only those behind that name."""
    query = select(*(getattr(ScheduleRow, name) for name in _SHOWN)).order_by(ScheduleRow.name).limit(limit)
    if after is not None:
        query = query.where(ScheduleRow.name > after)
    return [ScheduleSummary(**_shown(row)) for row in session.execute(query)]


def change_schedule(
    session: Session, name: str, written: ScheduleFields, version: int, now: datetime
) -> ScheduleRecord:
    """Replace what is written in a schedule that is still at ``version``.

    With other times, or when it is resumed, it waits for its first time after ``now``: what lies before was never asked
    for, and is not missed.

    Raises:
        InvalidTime: as :func:`create_schedule`.
        VersionConflict: somebody changed it in between.
    """
    row = _at_version(session, name, version)
    _write(row, written, now)
    row.version += 1
    session.flush()
    return _record(row)


def delete_schedule(session: Session, name: str, version: int) -> None:
    """Delete a schedule and the record of what it fired. Its sweeps stay.

    Raises:
        VersionConflict: somebody changed it in between.
    """
    session.delete(_at_version(session, name, version))
    session.flush()


def _write(row: ScheduleRow, written: ScheduleFields, now: datetime) -> None:
    times = cron.read(written.cron, written.timezone, now)
    as_before = (row.cron, row.timezone, row.suspended) == (times.expression, written.timezone, False)
    row.cron = times.expression
    row.timezone = written.timezone
    row.missed = written.missed
    row.suspended = written.suspended
    row.matrix = written.matrix
    row.updated_at = now
    if written.suspended:
        row.next_at = None
    elif not as_before:
        row.served_until = now
        row.next_at = next(times.after(now), None)


def _at_version(session: Session, name: str, version: int) -> ScheduleRow:
    row = _schedule(session, name, lock=True)
    if row.version != version:
        raise VersionConflict(name, version, row.version)
    return row


def _schedule(session: Session, name: str, lock: bool = False) -> ScheduleRow:
    row = session.get(ScheduleRow, name, with_for_update=True if lock else None)
    if row is None:
        raise UnknownRecord("schedule", name)
    return row


def _record(row: ScheduleRow) -> ScheduleRecord:
    return ScheduleRecord(**_shown(row), matrix=row.matrix)


def _shown(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _SHOWN} | {"missed": Missed(row.missed)}
