"""Tell a stored job, or a sweep, what happened, and carry out what the lifecycle makes of it in the database.

Everything here runs in the caller's unit of work: what an event changes is stored as a whole or not at all. What has to
be done outside of the database, to start a run or to stop one, is the dispatcher's: it sees it in the jobs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import event as database
from sqlalchemy.orm import Session

from service.dispatch.history import Ran, followed, with_reasons
from service.dispatch.judging import ENDS, Found, SharedArms, judged, shared_arms, without_report, words
from service.dispatch.runs import Workplace
from service.dispatch.work import Places, Work
from service.domain.arms import RunNeeds
from service.domain.case import Judgement, Reason
from service.domain.cell import Cell
from service.domain.judge import conclude
from service.domain.lifecycle import (
    Course,
    Do,
    Event,
    Instruction,
    Kind,
    Level,
    Limits,
    State,
    SweepState,
    handle,
)
from service.domain.verdict import Verdict
from service.settings import Settings
from service.store import repositories
from service.store.queue_records import JobKind, JobRecord
from service.store.records import RUN_LOST, CellRecord, NewEvent
from workers.protocol import ArmReport, Evidence, Outcome, RunSpec

_ARM_ENDS = {Outcome.OK: Kind.FINISH, Outcome.CRASHED: Kind.FAIL, Outcome.TIMED_OUT: Kind.TIME_OUT}


NOT_JUDGED = {Kind.CANCEL: Verdict.CANCELLED, Kind.BREAK: Verdict.CRASHED, Kind.REFUSE: Verdict.CRASHED}
"""How a cell ends of which there is nothing to judge."""


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


class Courses:
    """``limits``: how often a lost run is tried again. ``ended``: told of every sweep that ends."""

    def __init__(self, settings: Settings, owner: str, ended: Callable[[str], None]) -> None:
        self._settings = settings
        self._owner = owner
        self._limits = Limits(attempts=settings.max_attempts)
        self._ended = ended

    # --- leases ------------------------------------------------------------------------------------------------------

    def lease(self, session: Session, job: JobRecord, run_id: str) -> Lease:
        """Take ``job`` to run it. Its run is stored.

        Raises:
            InvalidTransition: somebody else was faster.
        """
        job = repositories.get_job(session, job.id)
        course, _ = self._handle(job, Event(Kind.LEASE, self._owner))
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
        work, place = self._work(session, job)
        found = repositories.get_cell(session, job.sweep_id, job.cell_id)
        assert found.shape is not None
        if work.need is not None:
            return Lease(job, place.shared_run(work.need, found.shape, job.leases + 1), place)
        assert work.needs is not None
        arms = shared_arms(session, work.needs, place)
        cell = Cell(found.id, found.name, found.requested, found.expect, found.checks, ())
        run = place.cell_run(run_id, cell, work.needs, found.shape, set(arms.broken), work.batch, arms.folders)
        return Lease(job, run, place, work.needs, arms)

    def _work(self, session: Session, job: JobRecord) -> tuple[Work, Workplace]:
        work = Work.read(job.work)
        places = Places.read(repositories.get_queue(session, job.sweep_id).places)
        return work, places.workplace(job.sweep_id, work.environment, self._settings)

    def start(self, session: Session, lease: Lease) -> None:
        """The actor of the run has answered."""
        job = self._mine(session, lease)
        course, _ = self._handle(job, Event(Kind.START, "its actor answered"))
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
        judgement = self._judge(session, job, found)
        kind = ENDS.get(judgement.verdict, Kind.FINISH)
        self._tell(session, job, Event(kind, "its run came to an end"), found)

    def come_out_arm(self, session: Session, lease: Lease, report: ArmReport | None) -> None:
        """The run of a shared arm came to its end."""
        job = self._mine(session, lease)
        report = report or without_report(lease.run, "it ended without a report")
        repositories.finish_arm(session, job.id, report)
        self._tell(
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
        self._tell(session, job, Event(Kind.REFUSE, why), Found(None, failure=why))

    def _lose(self, session: Session, job: JobRecord, why: str, kind: Kind) -> None:
        found = Found(None, failure=why) if kind is Kind.BREAK else self._without_evidence(session, job, why)
        self._tell(session, job, Event(kind, why), found)

    def hand_back(self, session: Session, lease: Lease, why: str) -> None:
        """The run is given up for no fault of its own: the next controller begins it anew."""
        job = self._mine(session, lease)
        self._tell(session, job, Event(Kind.HAND_BACK, why), self._without_evidence(session, job, why))

    def _without_evidence(self, session: Session, job: JobRecord, why: str) -> Found:
        if job.kind is JobKind.ARM:
            return Found(None, failure=why)
        work, place = self._work(session, job)
        assert work.needs is not None
        return shared_arms(session, work.needs, place).found(None, work.needs, place, why)

    def _mine(self, session: Session, lease: Lease) -> JobRecord:
        job = repositories.get_job(session, lease.job.id)
        if job.run_id != lease.run.run_id or job.owner != self._owner:
            raise NoLongerMine(f"run {lease.run.run_id} has no lease any more")
        return job

    # --- what people ask for -----------------------------------------------------------------------------------------

    def cancel_job(self, session: Session, job: JobRecord, why: str) -> None:
        self._tell(session, job, Event(Kind.CANCEL, why), Found(None, failure=why))
        for needed in repositories.jobs_needed(session, job.id):
            if not needed.state.ended and not repositories.has_open_dependents(session, needed.id):
                self._tell(session, needed, Event(Kind.CANCEL, "no cell needs it any more"))

    def run_again(self, session: Session, job: JobRecord, why: str) -> None:
        """Queue an ended job again, with all its attempts."""
        course, instructions = self._handle(job, Event(Kind.RERUN, why))
        self._queue(session, job, course, instructions[0])
        if job.kind is JobKind.CELL:
            repositories.ask_again(session, job.sweep_id, job.cell_id)

    def give_up(self, session: Session, sweep_id: str, why: str) -> None:
        """Conclude all of a sweep that nobody goes on with."""
        for job in reversed(repositories.jobs_of(session, sweep_id)):
            if not job.state.ended:
                kind = Kind.REFUSE if job.state is State.QUEUED else Kind.BREAK
                self._tell(session, job, Event(kind, why), Found(None, failure=why))
        for cell in repositories.cells_of(session, sweep_id):
            if not cell.state.ended:
                store_judgement(session, cell, unjudged(cell, Verdict.CRASHED, why), State.CRASHED)
        self.end_sweep(session, sweep_id)

    def end_sweep(self, session: Session, sweep_id: str) -> None:
        """End the sweep if all its cells have ended."""
        sweep = repositories.get_sweep(session, sweep_id)
        if sweep.state is SweepState.ENDED or repositories.has_open_cells(session, sweep_id):
            return
        repositories.end_sweep(session, sweep_id)
        database.listen(session, "after_commit", lambda _: self._ended(sweep_id), once=True)

    # --- instructions ------------------------------------------------------------------------------------------------

    def _handle(self, job: JobRecord, event: Event) -> tuple[Course, tuple[Instruction, ...]]:
        what = f"cell {job.cell_id}" if job.kind is JobKind.CELL else f"shared arm {job.id}"
        course = Course(Level.JOB, f"{what} of sweep {job.sweep_id}", job.state, job.lost, job.story)
        return handle(course, event, self._limits)

    def _tell(self, session: Session, job: JobRecord, event: Event, found: Found | None = None) -> None:
        course, instructions = self._handle(job, event)
        repositories.move_job(session, job.id, course)
        for instruction in instructions:
            if instruction.do is Do.END_RUN:
                self._end_run(session, job, event, found)
            elif instruction.do is Do.QUEUE:
                self._queue(session, job, course, instruction)
            elif instruction.do is Do.CONCLUDE:
                self._conclude(session, job, course, event, found)

    def _queue(self, session: Session, job: JobRecord, course: Course, instruction: Instruction) -> None:
        repositories.move_job(session, job.id, course, due=time.time() + instruction.after_s)
        repositories.count_waits(session, job.id)
        if job.kind is JobKind.CELL and not job.state.ended:
            repositories.set_cell_state(session, job.sweep_id, job.cell_id, State.QUEUED)

    def _end_run(self, session: Session, job: JobRecord, event: Event, found: Found | None) -> None:
        if event.kind in (Kind.LOSE, Kind.BREAK):
            data = {"name": event.cause, "attempt": job.leases}
            lost = NewEvent(job.sweep_id, time.time(), RUN_LOST, job.cell_id, job.run_id, data=data)
            repositories.add_events(session, [lost])
        if job.kind is JobKind.ARM or job.run_id is None:
            return
        run = repositories.get_run(session, job.run_id)
        after, _ = handle(Course(Level.RUN, f"run {run.id}", run.state), event)
        assert isinstance(after.state, State)
        evidence, failure = (found.evidence, found.failure) if found else (None, None)
        repositories.finish_run(session, run.id, after.state, evidence, failure)

    def _conclude(self, session: Session, job: JobRecord, course: Course, event: Event, found: Found | None) -> None:
        repositories.release_waiting(session, job.id)
        if job.kind is JobKind.ARM:
            if event.kind in (Kind.LOSE, Kind.BREAK):
                self._finish_lost_arm(session, job, event.cause)
            return
        assert isinstance(course.state, State)
        if event.kind in NOT_JUDGED:
            finding = NOT_JUDGED[event.kind]
            self._store(session, job, lambda cell: unjudged(cell, finding, event.cause), course.state, None)
        else:
            assert found is not None
            self._store(session, job, lambda cell: self._judgement(session, cell, found), course.state, found.evidence)
        self.end_sweep(session, job.sweep_id)

    def _finish_lost_arm(self, session: Session, job: JobRecord, why: str) -> None:
        work, place = self._work(session, job)
        assert work.need is not None
        cell = repositories.get_cell(session, job.sweep_id, job.cell_id)
        assert cell.shape is not None
        run = place.shared_run(work.need, cell.shape, job.leases)
        repositories.finish_arm(session, job.id, without_report(run, why))

    # --- verdicts ----------------------------------------------------------------------------------------------------

    def _judge(self, session: Session, job: JobRecord, found: Found) -> Judgement:
        return self._judgement(session, repositories.get_cell(session, job.sweep_id, job.cell_id), found)

    def _judgement(self, session: Session, cell: CellRecord, found: Found) -> Judgement:
        places = Places.read(repositories.get_queue(session, cell.sweep_id).places)
        of = None
        if cell.duplicate_of is not None:
            of = repositories.get_cell(session, cell.sweep_id, cell.duplicate_of).name
        return judged(cell, found, places.notes.get(cell.id, ()), of)

    def _store(
        self,
        session: Session,
        job: JobRecord,
        judgement: Callable[[CellRecord], Judgement],
        state: State,
        evidence: Evidence | None,
    ) -> None:
        """The verdict on the cell of ``job``, and on those that share its result; its series has a word in it."""
        cell = repositories.get_cell(session, job.sweep_id, job.cell_id)
        _, place = self._work(session, job)
        found = judgement(cell)
        reasons = followed(session, Ran(cell, job.run_id, place.environment, evidence, found), self._settings)
        store_judgement(session, cell, with_reasons(found, reasons, cell), state)
        for duplicate in repositories.duplicates_of(session, job.sweep_id, job.cell_id):
            if not duplicate.state.ended:
                store_judgement(session, duplicate, with_reasons(judgement(duplicate), reasons, duplicate), state)


def unjudged(cell: CellRecord, finding: Verdict, why: str) -> Judgement:
    """Nothing was found of the cell, and why."""
    return conclude([Reason(finding, why)], cell.expect)


def store_judgement(session: Session, cell: CellRecord, judgement: Judgement, state: State) -> None:
    reasons = [words(reason) for reason in judgement.reasons]
    repositories.conclude_cell(session, cell.sweep_id, cell.id, judgement.verdict, judgement.ok, reasons, state)
