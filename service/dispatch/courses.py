"""Tell a stored job, or a sweep, what happened, and carry out what the lifecycle makes of it in the database.

Everything here runs in the caller's unit of work: what an event changes is stored as a whole or not at all. What has to
be done outside of the database, to start a run or to stop one, is the dispatcher's: it sees it in the jobs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sqlalchemy import event as database
from sqlalchemy.orm import Session

from service.dispatch.history import Ran, followed, with_reasons
from service.dispatch.judging import Found, judged, without_report, words
from service.dispatch.work import stored_work
from service.domain.case import Judgement, Reason
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
from service.report_text import keep_part
from service.settings import Settings
from service.store import repositories
from service.store.queue_records import JobKind, JobRecord
from service.store.records import RUN_LOST, CellRecord, NewEvent
from workers.protocol import Evidence

NOT_JUDGED = {Kind.CANCEL: Verdict.CANCELLED, Kind.BREAK: Verdict.CRASHED, Kind.REFUSE: Verdict.CRASHED}
"""How a cell ends of which there is nothing to judge."""


class Courses:
    """``ended``: told of every sweep that ends."""

    def __init__(self, settings: Settings, ended: Callable[[str], None]) -> None:
        self._settings = settings
        self._limits = Limits(attempts=settings.max_attempts)
        self._ended = ended

    # --- what people ask for -----------------------------------------------------------------------------------------

    def cancel_job(self, session: Session, job: JobRecord, why: str) -> None:
        self.tell(session, job, Event(Kind.CANCEL, why), Found(None, failure=why))
        for needed in repositories.jobs_needed(session, job.id):
            if not needed.state.ended and not repositories.has_open_dependents(session, needed.id):
                self.tell(session, needed, Event(Kind.CANCEL, "no cell needs it any more"))

    def run_again(self, session: Session, job: JobRecord, why: str) -> None:
        """Queue an ended job again, with all its attempts."""
        course, instructions = self.handle(job, Event(Kind.RERUN, why))
        self._queue(session, job, course, instructions[0])
        if job.kind is JobKind.CELL:
            repositories.ask_again(session, job.sweep_id, job.cell_id)

    def give_up(self, session: Session, sweep_id: str, why: str) -> None:
        """Conclude all of a sweep that nobody goes on with."""
        for job in reversed(repositories.jobs_of(session, sweep_id)):
            if not job.state.ended:
                kind = Kind.REFUSE if job.state is State.QUEUED else Kind.BREAK
                self.tell(session, job, Event(kind, why), Found(None, failure=why))
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

    def handle(self, job: JobRecord, event: Event) -> tuple[Course, tuple[Instruction, ...]]:
        """What becomes of ``job`` by ``event``; nothing is stored."""
        what = f"cell {job.cell_id}" if job.kind is JobKind.CELL else f"shared arm {job.id}"
        course = Course(Level.JOB, f"{what} of sweep {job.sweep_id}", job.state, job.lost, job.story)
        return handle(course, event, self._limits)

    def tell(self, session: Session, job: JobRecord, event: Event, found: Found | None = None) -> None:
        """``event`` happened to ``job``. ``found``: what became of its run, if it had one."""
        course, instructions = self.handle(job, event)
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
        if evidence is not None:
            keep_part(session, run.id, evidence)

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
            self._store(session, job, lambda cell: self.judgement(session, cell, found), course.state, found.evidence)
        self.end_sweep(session, job.sweep_id)

    def _finish_lost_arm(self, session: Session, job: JobRecord, why: str) -> None:
        work, place = stored_work(session, job, self._settings)
        assert work.need is not None
        cell = repositories.get_cell(session, job.sweep_id, job.cell_id)
        assert cell.shape is not None
        run = place.shared_run(work.need, cell.shape, job.leases)
        repositories.finish_arm(session, job.id, without_report(run, why))

    # --- verdicts ----------------------------------------------------------------------------------------------------

    def judgement(self, session: Session, cell: CellRecord, found: Found) -> Judgement:
        """The verdict on ``cell`` by what was found of it."""
        of = None
        if cell.duplicate_of is not None:
            of = repositories.get_cell(session, cell.sweep_id, cell.duplicate_of).name
        return judged(cell, found, of)

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
        _, place = stored_work(session, job, self._settings)
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
