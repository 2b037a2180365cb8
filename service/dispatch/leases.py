"""Leases: a job is taken to be run, and what becomes of its run is told to its course.

As in ``courses``, everything runs in the caller's unit of work.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from service.dispatch.courses import Courses
from service.dispatch.judging import ENDS, Found, SharedArms, shared_arms, without_report
from service.dispatch.runs import Workplace
from service.dispatch.work import stored_work
from service.domain.arms import RunNeeds
from service.domain.cell import Cell
from service.domain.lifecycle import Event, Kind, State
from service.settings import Settings
from service.store import repositories
from service.store.queue_records import JobKind, JobRecord
from workers.protocol import ArmReport, Evidence, Outcome, RunSpec

_ARM_ENDS = {Outcome.OK: Kind.FINISH, Outcome.CRASHED: Kind.FAIL, Outcome.TIMED_OUT: Kind.TIME_OUT}


class NoLongerMine(RuntimeError):
    """The run for which a job was leased is not the one it is leased for now. What it found counts for nothing."""


@dataclass(frozen=True)
class Lease:
    """A job and its run. ``arms``: how the shared arms of a cell ended; nothing of it changes any more."""

    job: JobRecord
    run: RunSpec
    place: Workplace
    wanted: RunNeeds | None = None
    arms: SharedArms | None = None


class Leases:
    """Those that the controller ``owner`` has."""

    def __init__(self, settings: Settings, owner: str, courses: Courses) -> None:
        self._settings = settings
        self._owner = owner
        self._courses = courses

    def lease(self, session: Session, job: JobRecord, run_id: str) -> Lease:
        """Take ``job`` to run it. Its run is stored.

        Raises:
            InvalidTransition: somebody else was faster.
        """
        job = repositories.get_job(session, job.id)
        course, _ = self._courses.handle(job, Event(Kind.LEASE, self._owner))
        lease = self._lease(session, job, run_id)
        repositories.move_job(session, job.id, course, owner=self._owner, run_id=lease.run.run_id)
        if job.kind is JobKind.CELL:
            repositories.create_run(session, job.sweep_id, job.cell_id, lease.run, State.LEASED)
            repositories.set_cell_state(session, job.sweep_id, job.cell_id, State.LEASED)
        else:
            arm = lease.run.arms[0]
            repositories.hold_arm(session, job.id, arm.role, arm.folder, job.sweep_id)
        return lease

    def _lease(self, session: Session, job: JobRecord, run_id: str) -> Lease:
        work, place = stored_work(session, job, self._settings)
        found = repositories.get_cell(session, job.sweep_id, job.cell_id)
        assert found.shape is not None
        if work.need is not None:
            return Lease(job, place.shared_run(work.need, found.shape, job.leases + 1), place)
        assert work.needs is not None
        arms = shared_arms(session, work.needs, place)
        cell = Cell(found.id, found.name, found.requested, found.expect, found.checks, ())
        run = place.cell_run(run_id, cell, work.needs, found.shape, set(arms.broken), work.batch, arms.folders)
        return Lease(job, run, place, work.needs, arms)

    def start(self, session: Session, lease: Lease) -> None:
        """The actor of the run has answered."""
        job = self._mine(session, lease)
        course, _ = self._courses.handle(job, Event(Kind.START, "its actor answered"))
        repositories.move_job(session, job.id, course, owner=job.owner, run_id=job.run_id)
        if job.kind is JobKind.CELL:
            repositories.set_run_state(session, lease.run.run_id, State.RUNNING)
            repositories.set_cell_state(session, job.sweep_id, job.cell_id, State.RUNNING)

    # --- how a run ends ----------------------------------------------------------------------------------------------

    def come_out(self, session: Session, lease: Lease, evidence: Evidence | None) -> None:
        """The run of a cell came to its end."""
        job = self._mine(session, lease)
        assert lease.arms is not None
        assert lease.wanted is not None
        found = lease.arms.found(evidence, lease.wanted, lease.place)
        cell = repositories.get_cell(session, job.sweep_id, job.cell_id)
        judgement = self._courses.judgement(session, cell, found)
        kind = ENDS.get(judgement.verdict, Kind.FINISH)
        self._courses.tell(session, job, Event(kind, "its run came to an end"), found)

    def come_out_arm(self, session: Session, lease: Lease, report: ArmReport | None) -> None:
        """The run of a shared arm came to its end."""
        job = self._mine(session, lease)
        report = report or without_report(lease.run, "it ended without a report")
        repositories.finish_arm(session, job.id, report)
        self._courses.tell(
            session, job, Event(_ARM_ENDS.get(report.outcome, Kind.FINISH), f"its engine ended: {report.outcome}")
        )

    def lose(self, session: Session, lease: Lease, why: str, kind: Kind = Kind.LOSE) -> None:
        """The run was lost; with ``Kind.BREAK`` in a way in which it would be lost again."""
        self._lose(session, self._mine(session, lease), why, kind)

    def reclaim(self, session: Session, job_id: str, run_id: str) -> None:
        """The run was lost with the controller that had the lease.

        Raises:
            NoLongerMine: it has ended meanwhile.
        """
        job = repositories.get_job(session, job_id)
        if job.run_id != run_id:
            raise NoLongerMine(f"run {run_id} has ended")
        self._lose(session, job, f"the controller that ran it, {job.owner}, is gone", Kind.LOSE)

    def refuse(self, session: Session, job_id: str, why: str) -> None:
        """It is in the queue and cannot be run."""
        job = repositories.get_job(session, job_id)
        self._courses.tell(session, job, Event(Kind.REFUSE, why), Found(None, failure=why))

    def _lose(self, session: Session, job: JobRecord, why: str, kind: Kind) -> None:
        found = Found(None, failure=why) if kind is Kind.BREAK else self._without_evidence(session, job, why)
        self._courses.tell(session, job, Event(kind, why), found)

    def hand_back(self, session: Session, lease: Lease, why: str) -> None:
        """The run is given up for no fault of its own: the next controller begins it anew."""
        job = self._mine(session, lease)
        self._courses.tell(session, job, Event(Kind.HAND_BACK, why), self._without_evidence(session, job, why))

    def _without_evidence(self, session: Session, job: JobRecord, why: str) -> Found:
        if job.kind is JobKind.ARM:
            return Found(None, failure=why)
        work, place = stored_work(session, job, self._settings)
        assert work.needs is not None
        return shared_arms(session, work.needs, place).found(None, work.needs, place, why)

    def _mine(self, session: Session, lease: Lease) -> JobRecord:
        job = repositories.get_job(session, lease.job.id)
        if job.run_id != lease.run.run_id or job.owner != self._owner:
            raise NoLongerMine(f"run {lease.run.run_id} has no lease any more")
        return job
