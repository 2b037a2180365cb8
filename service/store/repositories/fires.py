"""Queries on what schedules fire: times that have come are claimed, submitted by their owner, and concluded.

A claim is a row that is unique for its schedule and time, so two controllers never serve one time. It is leased: that
of a controller which is gone is taken over.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from service.domain import cron
from service.domain.schedule import Cause, Missed, turn
from service.store.models import SweepRow
from service.store.notes import note
from service.store.records import UnknownRecord
from service.store.schedule_models import FireRow, ScheduleRow
from service.store.schedule_records import Claim, Fire, FireState


def due_schedules(session: Session, now: datetime, limit: int) -> list[str]:
    """Names of schedules whose time has come, the longest overdue first."""
    query = select(ScheduleRow.name).where(ScheduleRow.next_at <= now).order_by(ScheduleRow.next_at).limit(limit)
    return list(session.scalars(query))


def next_time(session: Session) -> datetime | None:
    """When the next schedule is due; ``None`` if none is waiting."""
    query = select(ScheduleRow.next_at).where(ScheduleRow.next_at.is_not(None)).order_by(ScheduleRow.next_at).limit(1)
    return session.scalars(query).one_or_none()


def claim_due(session: Session, name: str, now: datetime, claim: Claim) -> Fire | None:
    """Serve the time of a schedule that has come, if it is still to be served. A missed one may be skipped by rule.

    Raises:
        IntegrityError: another controller serves it; nothing is to be done then.
    """
    query = select(ScheduleRow).where(ScheduleRow.name == name, ScheduleRow.next_at <= now)
    # Who finds the row locked leaves it to the other; on SQLite there is one writer in any case.
    row = session.scalars(query.with_for_update(skip_locked=True)).one_or_none()
    if row is None:
        return None
    found = turn(cron.read(row.cron, row.timezone, row.served_until), row.served_until, now, Missed(row.missed))
    row.next_at = found.next
    if found.time is None:
        return None
    row.served_until = found.time
    if _is_served(session, name, found.time):
        # The clock was put back, and somebody wrote the schedule anew since.
        return None
    state = FireState.CLAIMED if found.cause else FireState.SKIPPED
    fire = _add(session, name, found.time, found.cause or Cause.MISSED, state, now, claim)
    if state is FireState.CLAIMED:
        return fire
    note(session, fire)
    return None


def claim_asked(session: Session, name: str, now: datetime, claim: Claim) -> Fire:
    """Fire a schedule because somebody asks, whether it is suspended or not."""
    if session.get(ScheduleRow, name) is None:
        raise UnknownRecord("schedule", name)
    return _add(session, name, None, Cause.ASKED, FireState.CLAIMED, now, claim)


def abandoned_fires(session: Session, now: datetime) -> list[int]:
    """Claims whose owner let the lease expire, oldest first."""
    query = select(FireRow.id).where(FireRow.state == FireState.CLAIMED, FireRow.lease_until < now).order_by(FireRow.id)
    return list(session.scalars(query))


def take_over(session: Session, fire_id: int, now: datetime, claim: Claim) -> Fire | None:
    """Have a claim whose lease expired; ``None`` if another has it."""
    query = select(FireRow).where(FireRow.id == fire_id, FireRow.state == FireState.CLAIMED, FireRow.lease_until < now)
    row = session.scalars(query.with_for_update(skip_locked=True)).one_or_none()
    if row is None:
        return None
    row.owner, row.lease_until = claim.owner, claim.until
    row.attempts += 1
    session.flush()
    return _record(row)


def renew_fires(session: Session, fire_ids: Sequence[int], claim: Claim) -> None:
    """Keep claims that are being submitted."""
    if fire_ids:
        session.execute(
            update(FireRow)
            .where(FireRow.id.in_(fire_ids), FireRow.owner == claim.owner, FireRow.state == FireState.CLAIMED)
            .values(lease_until=claim.until)
        )


def conclude_fire(
    session: Session, fire_id: int, owner: str, now: datetime, sweep_id: str | None, detail: str | None = None
) -> None:
    """Record the sweep of a claim, or why there is none. One that another took over is left to that one."""
    row = session.get(FireRow, fire_id, with_for_update=True)
    if row is None or row.owner != owner or row.state != FireState.CLAIMED:
        return
    row.state = FireState.FAILED if sweep_id is None else FireState.SUBMITTED
    row.sweep_id, row.detail, row.ended_at = sweep_id, detail, now
    note(session, _record(row))


def get_fire(session: Session, fire_id: int) -> Fire:
    row = session.get(FireRow, fire_id)
    if row is None:
        raise UnknownRecord("fire", str(fire_id))
    return _record(row)


def list_fires(session: Session, name: str, limit: int, before: int | None = None) -> list[Fire]:
    """What a schedule fired, newest first; with ``before`` only what is older than that fire."""
    query = select(FireRow).where(FireRow.schedule == name)
    if before is not None:
        query = query.where(FireRow.id < before)
    return [_record(row) for row in session.scalars(query.order_by(FireRow.id.desc()).limit(limit))]


def without_sweep(session: Session, limit: int) -> list[Fire]:
    """Of each schedule that is not suspended what it fired last, where no sweep came of that; newest first."""
    ended = (FireState.SUBMITTED, FireState.FAILED)
    newest = (
        select(func.max(FireRow.id))
        .where(FireRow.schedule == ScheduleRow.name, FireRow.state.in_(ended))
        .correlate(ScheduleRow)
        .scalar_subquery()
    )
    query = (
        select(FireRow)
        .join(ScheduleRow, FireRow.id == newest)
        .where(FireRow.state == FireState.FAILED, ScheduleRow.suspended.is_(False))
    )
    return [_record(row) for row in session.scalars(query.order_by(FireRow.id.desc()).limit(limit))]


def has_sweep(session: Session, sweep_id: str) -> bool:
    """Whether there is a sweep of this id."""
    return session.get(SweepRow, sweep_id) is not None


def _is_served(session: Session, name: str, due_at: datetime) -> bool:
    query = select(FireRow.id).where(FireRow.schedule == name, FireRow.due_at == due_at)
    return session.scalars(query).one_or_none() is not None


def _add(
    session: Session, name: str, due_at: datetime | None, cause: Cause, state: FireState, now: datetime, claim: Claim
) -> Fire:
    row = FireRow(
        schedule=name,
        due_at=due_at,
        cause=cause,
        state=state,
        owner=claim.owner,
        claimed_at=now,
        lease_until=claim.until,
        attempts=1,
        ended_at=now if state is FireState.SKIPPED else None,
    )
    session.add(row)
    session.flush()
    return _record(row)


def _record(row: FireRow) -> Fire:
    return Fire(
        id=row.id,
        schedule=row.schedule,
        due_at=row.due_at,
        cause=Cause(row.cause),
        state=FireState(row.state),
        claimed_at=row.claimed_at,
        attempts=row.attempts,
        ended_at=row.ended_at,
        sweep_id=row.sweep_id,
        detail=row.detail,
    )
