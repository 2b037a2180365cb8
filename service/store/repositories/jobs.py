"""Queries on the queue: what there is to run, and in which order."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Select, func, insert, select, update
from sqlalchemy.orm import Session

from service.domain.lifecycle import Course, State
from service.store.queue_models import JobNeedRow, JobRow, QueueRow
from service.store.queue_records import JobKind, JobRecord, NewJob, QueueRecord
from service.store.records import UnknownRecord

_HELD = (State.LEASED, State.RUNNING)
_OPEN = (State.AUDITING, State.QUEUED, *_HELD)


def queue_sweep(session: Session, queue: QueueRecord, jobs: Sequence[NewJob]) -> None:
    """Store how a sweep is dispatched, and its jobs, all of them queued. Jobs that are needed come first."""
    row = QueueRow(
        sweep_id=queue.sweep_id,
        queue=queue.queue,
        priority=queue.priority,
        max_parallel=queue.max_parallel,
        key_id=queue.key_id,
        places=queue.places,
    )
    session.add(row)
    session.flush()
    if jobs:
        session.execute(insert(JobRow), [_new_job(job, queue) for job in jobs])
    needs = [{"job_id": job.id, "needs_id": needed} for job in jobs for needed in job.needs]
    if needs:
        session.execute(insert(JobNeedRow), needs)


def get_queue(session: Session, sweep_id: str) -> QueueRecord:
    row = session.get(QueueRow, sweep_id)
    if row is None:
        raise UnknownRecord("queue of sweep", sweep_id)
    return QueueRecord(row.sweep_id, row.queue, row.priority, row.max_parallel, row.key_id, row.places)


def max_parallel(session: Session, sweeps: Collection[str]) -> dict[str, int | None]:
    """How many runs each of ``sweeps`` may have at once; ``None`` for as many as there is room for."""
    if not sweeps:
        return {}
    query = select(QueueRow.sweep_id, QueueRow.max_parallel).where(QueueRow.sweep_id.in_(sweeps))
    return {row.sweep_id: row.max_parallel for row in session.execute(query)}


def change_queue(session: Session, sweep_id: str, queue: str) -> None:
    """Let those who dispatch ``queue`` take the jobs of a sweep."""
    for table in (QueueRow, JobRow):
        session.execute(update(table).where(table.sweep_id == sweep_id).values(queue=queue))


def get_job(session: Session, job_id: str) -> JobRecord:
    """The job, which nobody else changes until this unit of work ends."""
    return _record(_locked(session, job_id))


def jobs_of(session: Session, sweep_id: str) -> list[JobRecord]:
    """The jobs of a sweep in their order: shared arms first."""
    query = select(JobRow).where(JobRow.sweep_id == sweep_id).order_by(JobRow.position)
    return [_record(row) for row in session.scalars(query)]


def jobs_of_cell(session: Session, sweep_id: str, cell_id: str) -> list[JobRecord]:
    """The job of a cell, if it has one, and the shared arms that are run on its account."""
    return _records(session, select(JobRow).where(JobRow.sweep_id == sweep_id, JobRow.cell_id == cell_id))


def ready_jobs(
    session: Session,
    queue: str,
    now: float,
    limit: int,
    full_sweeps: Collection[str] = (),
    full_keys: Collection[str] = (),
) -> list[JobRecord]:
    """The jobs to lease next: by priority, then by the age of their sweep. Sweeps and keys that are full have none."""
    query = select(JobRow).where(
        JobRow.queue == queue, JobRow.state == State.QUEUED, JobRow.waits == 0, JobRow.due <= now
    )
    if full_sweeps:
        query = query.where(JobRow.sweep_id.not_in(full_sweeps))
    if full_keys:
        query = query.where(JobRow.key_id.is_(None) | JobRow.key_id.not_in(full_keys))
    query = query.order_by(JobRow.rank, JobRow.sweep_id, JobRow.position).limit(limit)
    return [_record(row) for row in session.scalars(query)]


def held_runs(session: Session, queue: str) -> dict[str, str]:
    """The runs for which jobs are leased now, each with its job."""
    query = select(JobRow.run_id, JobRow.id).where(JobRow.queue == queue, JobRow.state.in_(_HELD))
    return {run_id: job_id for run_id, job_id in session.execute(query) if run_id is not None}


def move_job(
    session: Session, job_id: str, course: Course, due: float = 0.0, owner: str | None = None, run_id: str | None = None
) -> None:
    """Store how far a job came. Who has a lease on it is said by ``owner``, which nobody has of one that waits."""
    row = _locked(session, job_id)
    row.state = course.state
    row.lost = course.lost
    row.story = list(course.story)
    row.due = due
    row.leases += row.run_id is None and run_id is not None
    row.owner = owner
    row.run_id = run_id


def release_waiting(session: Session, job_id: str) -> None:
    """``job_id`` has ended: those that need it wait for one job less."""
    waiting = select(JobNeedRow.job_id).where(JobNeedRow.needs_id == job_id)
    change = update(JobRow).where(JobRow.id.in_(waiting), JobRow.waits > 0).values(waits=JobRow.waits - 1)
    session.execute(change.execution_options(synchronize_session="fetch"))


def count_waits(session: Session, job_id: str) -> None:
    """Count again for how many jobs ``job_id`` has to wait."""
    needed = select(JobNeedRow.needs_id).where(JobNeedRow.job_id == job_id)
    query = select(func.count()).select_from(JobRow).where(JobRow.id.in_(needed), JobRow.state.in_(_OPEN))
    _locked(session, job_id).waits = session.scalars(query).one()


def jobs_needed(session: Session, job_id: str) -> list[JobRecord]:
    """The jobs that ``job_id`` needs."""
    query = select(JobRow).join(JobNeedRow, JobNeedRow.needs_id == JobRow.id).where(JobNeedRow.job_id == job_id)
    return _records(session, query)


def has_open_dependents(session: Session, job_id: str) -> bool:
    """Is there a job that needs ``job_id`` and has not ended?"""
    query = (
        select(JobRow.id)
        .join(JobNeedRow, JobNeedRow.job_id == JobRow.id)
        .where(JobNeedRow.needs_id == job_id, JobRow.state.in_(_OPEN))
        .limit(1)
    )
    return session.scalars(query).first() is not None


def _records(session: Session, query: Select[JobRow]) -> list[JobRecord]:
    return [_record(row) for row in session.scalars(query.order_by(JobRow.sweep_id, JobRow.position))]


def _locked(session: Session, job_id: str) -> JobRow:
    row = session.get(JobRow, job_id, with_for_update=True)
    if row is None:
        raise UnknownRecord("job", job_id)
    return row


def _new_job(job: NewJob, queue: QueueRecord) -> dict[str, object]:
    return {
        "id": job.id,
        "sweep_id": queue.sweep_id,
        "queue": queue.queue,
        "kind": job.kind,
        "cell_id": job.cell_id,
        "position": job.position,
        "rank": -queue.priority,
        "key_id": queue.key_id,
        "state": State.QUEUED,
        "waits": len(job.needs),
        "due": 0.0,
        "lost": 0,
        "leases": 0,
        "ranks": job.ranks,
        "devices": job.devices,
        "work": job.work,
        "story": list(job.story),
    }


def _record(row: JobRow) -> JobRecord:
    return JobRecord(
        id=row.id,
        sweep_id=row.sweep_id,
        queue=row.queue,
        kind=JobKind(row.kind),
        cell_id=row.cell_id,
        rank=row.rank,
        key_id=row.key_id,
        state=State(row.state),
        waits=row.waits,
        lost=row.lost,
        leases=row.leases,
        owner=row.owner,
        run_id=row.run_id,
        ranks=row.ranks,
        devices=row.devices,
        work=row.work,
        story=tuple(row.story),
    )
