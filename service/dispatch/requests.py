"""What people ask of sweeps that are stored: cancel, run again. Each is one unit of work, whoever leads sees it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sqlalchemy.orm import Session

from service.dispatch.courses import Courses, cancelled, store_judgement
from service.domain.lifecycle import Course, Event, InvalidTransition, Kind, Level, State, handle
from service.store import repositories
from service.store.queue_records import JobKind, JobRecord
from service.store.records import CellRecord

CANCELLED = "cancelled on request"
AGAIN = "asked for again"


def cancel(session: Session, courses: Courses, sweep_id: str, cell_id: str | None) -> None:
    """Cancel what has not ended of a sweep, or one cell of it with those that share its result.

    Raises:
        UnknownRecord: there is no such sweep or cell.
        InvalidTransition: it has ended.
    """
    sweep = repositories.get_sweep(session, sweep_id)
    if cell_id is None:
        handle(Course(Level.SWEEP, f"sweep {sweep_id}", sweep.state), Event(Kind.CANCEL, CANCELLED))
        _cancel_all(session, courses, sweep_id)
    else:
        _cancel_cell(session, courses, repositories.get_cell(session, sweep_id, cell_id))
    courses.end_sweep(session, sweep_id)


def _cancel_all(session: Session, courses: Courses, sweep_id: str) -> None:
    # Cells first: an arm that nobody needs any more goes with the last that needed it.
    for job in reversed(repositories.jobs_of(session, sweep_id)):
        fresh = repositories.get_job(session, job.id)
        if not fresh.state.ended:
            courses.cancel_job(session, fresh, CANCELLED)
    for cell in repositories.cells_of(session, sweep_id):
        if not cell.state.ended:
            store_judgement(session, cell, cancelled(cell, CANCELLED), State.CANCELLED)


def _cancel_cell(session: Session, courses: Courses, cell: CellRecord) -> None:
    course = Course(Level.JOB, f"cell {cell.name!r} of sweep {cell.sweep_id}", cell.state)
    handle(course, Event(Kind.CANCEL, CANCELLED))
    job = _job_of(session, cell)
    if job is None:
        store_judgement(session, cell, cancelled(cell, CANCELLED), State.CANCELLED)
    else:
        courses.cancel_job(session, job, CANCELLED)


def rerun(session: Session, courses: Courses, sweep_id: str, cells: Sequence[str] | None) -> None:
    """Queue cells again: those named, or those that did not come out as expected. Nothing is changed if one cannot be.

    Raises:
        UnknownRecord: there is no such sweep or cell.
        InvalidTransition: one of them has not ended, none is there to be run again, or one never could be run.
    """
    every = {cell.id: cell for cell in repositories.cells_of(session, sweep_id)}
    sweep = repositories.get_sweep(session, sweep_id)
    if cells is None:
        named = [cell for cell in every.values() if cell.ok is False]
    else:
        named = [every.get(cell_id) or repositories.get_cell(session, sweep_id, cell_id) for cell_id in cells]
    wanted = {cell.duplicate_of or cell.id: every[cell.duplicate_of or cell.id] for cell in named}
    able = {key: cell for key, cell in wanted.items() if cells is not None or _job_of(session, cell) is not None}
    if not able:
        raise InvalidTransition(f"sweep {sweep_id} has no cell to run again: none that ran came out unexpected")
    for cell in able.values():
        _run_again(session, courses, cell)
    handle(Course(Level.SWEEP, f"sweep {sweep_id}", sweep.state), Event(Kind.RERUN, AGAIN))
    repositories.reopen_sweep(session, sweep_id)


def _run_again(session: Session, courses: Courses, cell: CellRecord) -> None:
    job = _job_of(session, cell)
    if job is None:
        raise InvalidTransition(
            f"cell {cell.name!r} of sweep {cell.sweep_id} was concluded when it was submitted and has no run; "
            "clone the sweep to have its environment asked again"
        )
    for arm in repositories.jobs_needed(session, job.id):
        if arm.state.ended and not _is_there(session, arm):
            courses.run_again(session, arm, AGAIN)
    courses.run_again(session, job, AGAIN)
    for duplicate in repositories.duplicates_of(session, cell.sweep_id, cell.id):
        if duplicate.state.ended:
            repositories.ask_again(session, cell.sweep_id, duplicate.id)


def _is_there(session: Session, job: JobRecord) -> bool:
    """Has a shared arm a result that can be looked at again?"""
    arm = repositories.get_arm(session, job.id)
    return job.state is State.FINISHED and arm is not None and (Path(arm.folder) / "result.json").exists()


def _job_of(session: Session, cell: CellRecord) -> JobRecord | None:
    found = [job for job in repositories.jobs_of_cell(session, cell.sweep_id, cell.id) if job.kind is JobKind.CELL]
    return repositories.get_job(session, found[0].id) if found else None
