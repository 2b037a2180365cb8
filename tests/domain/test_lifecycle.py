"""How far things got: every step of the table may be taken and no other, and no order of events loses any."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.lifecycle import (
    TRANSITIONS,
    Course,
    Do,
    Event,
    InvalidTransition,
    Kind,
    Level,
    Limits,
    State,
    SweepState,
    handle,
    step,
)
from service.domain.transitions import RULES

ENDS = {State.FINISHED, State.FAILED, State.CRASHED, State.TIMED_OUT, State.CANCELLED}

OF_A_JOB = {
    "auditing": {"queued", "failed", "crashed", "cancelled"},
    "queued": {"leased", "cancelled", "finished", "crashed", "failed", "timed_out"},
    "leased": {"running", "queued", "crashed", "cancelled"},
    "running": {"finished", "failed", "crashed", "timed_out", "cancelled", "queued"},
    **{str(end): {"queued"} for end in ENDS},
}
OF_A_RUN = {
    "queued": {"leased"},
    "leased": {"running", "crashed", "cancelled"},
    "running": {"finished", "failed", "crashed", "timed_out", "cancelled"},
}
ALLOWED = {Level.JOB: OF_A_JOB, Level.RUN: OF_A_RUN}


@pytest.mark.parametrize("level", ALLOWED)
@pytest.mark.parametrize(("before", "after"), list(itertools.product(State, State)))
def test_a_step_may_be_taken_if_and_only_if_it_is_in_the_table(level: Level, before: State, after: State) -> None:
    if after in ALLOWED[level].get(before, set()):
        assert step("c1", before, after, level) is after
    else:
        with pytest.raises(InvalidTransition):
            step("c1", before, after, level)


def reachable(level: Level, start: State | SweepState) -> set[str]:
    reached, fresh = {start}, {start}
    while fresh:
        fresh = {
            after
            for (of, before, _), rule in RULES.items()
            if of is level and before in fresh
            for after in rule.leads_to
        } - reached  # type: ignore[assignment]
        reached |= fresh
    return set(reached)


def test_every_state_is_reached_and_left() -> None:
    assert reachable(Level.JOB, State.AUDITING) == set(State)
    assert reachable(Level.RUN, State.QUEUED) == set(State) - {State.AUDITING}
    assert reachable(Level.SWEEP, SweepState.ACTIVE) == set(SweepState)
    for state in set(State) - ENDS:
        assert reachable(Level.JOB, state) & ENDS


def test_the_end_of_a_run_is_its_end_and_a_job_leaves_its_own_only_when_somebody_asks() -> None:
    assert {state for state in State if state.ended} == ENDS
    assert not any(TRANSITIONS[Level.RUN][state] for state in ENDS)
    kinds = {kind for level, state, kind in RULES if level is Level.JOB and state in ENDS}
    assert kinds == {Kind.RERUN}


def at(state: State | SweepState, level: Level = Level.JOB, lost: int = 0) -> Course:
    return Course(level, "cell c1", state, lost)


def test_a_lost_run_is_tried_again_until_no_attempt_is_left() -> None:
    course = at(State.LEASED)
    waits = []
    for _ in range(2):
        course, instructions = handle(course, Event(Kind.LOSE, "node gone"), Limits(attempts=3, backoff_s=2.0))
        assert course.state is State.QUEUED
        assert [instruction.do for instruction in instructions] == [Do.END_RUN, Do.QUEUE]
        waits.append(instructions[-1].after_s)
        course, _ = handle(course, Event(Kind.LEASE, "me"))
    assert waits == [2.0, 4.0]
    course, instructions = handle(course, Event(Kind.LOSE, "node gone"), Limits(attempts=3))
    assert course.state is State.CRASHED
    assert [instruction.do for instruction in instructions] == [Do.END_RUN, Do.CONCLUDE]


def test_what_is_handed_back_or_asked_for_again_has_lost_nothing() -> None:
    back, instructions = handle(at(State.RUNNING, lost=1), Event(Kind.HAND_BACK, "shut down"))
    assert (back.state, back.lost) == (State.QUEUED, 1)
    assert [instruction.do for instruction in instructions] == [Do.STOP, Do.END_RUN, Do.QUEUE]
    assert instructions[-1].after_s == 0.0
    again, _ = handle(at(State.CRASHED, lost=3), Event(Kind.RERUN, "asked"))
    assert (again.state, again.lost) == (State.QUEUED, 0)


@pytest.mark.parametrize(
    ("kind", "end"),
    [
        (Kind.FINISH, State.FINISHED),
        (Kind.FAIL, State.FAILED),
        (Kind.TIME_OUT, State.TIMED_OUT),
        (Kind.BREAK, State.CRASHED),
        (Kind.CANCEL, State.CANCELLED),
    ],
)
def test_ways_to_end_are_told_apart(kind: Kind, end: State) -> None:
    for level in (Level.JOB, Level.RUN):
        assert handle(at(State.RUNNING, level), Event(kind, "x"))[0].state is end


def test_an_invalid_event_tells_its_story() -> None:
    course = at(State.QUEUED)
    for kind, cause in ((Kind.LEASE, "host:7"), (Kind.START, "its actor answered"), (Kind.FINISH, "it came out")):
        course, _ = handle(course, Event(kind, cause))
    with pytest.raises(InvalidTransition) as caught:
        handle(course, Event(Kind.CANCEL, "on request"))
    assert str(caught.value) == (
        "cell c1 is finished and cannot be cancelled (on request). So far: leased (host:7), then started (its actor "
        "answered), then finished (it came out). From here it can be: asked for again"
    )
    with pytest.raises(InvalidTransition, match="nothing more, this is its end"):
        handle(at(State.CANCELLED, Level.RUN), Event(Kind.START, "x"))


def test_an_invalid_step_says_what_is_possible() -> None:
    with pytest.raises(InvalidTransition) as caught:
        step("cell c1", State.LEASED, State.FINISHED)
    expected = (
        "cell c1 is leased and cannot become finished; from here it may become: cancelled, crashed, queued, running"
    )
    assert str(caught.value) == expected
    with pytest.raises(InvalidTransition, match="nothing, it has ended"):
        step("run r1", State.CANCELLED, State.RUNNING, Level.RUN)


# --- any order of events ---------------------------------------------------------------------------------------------


@dataclass
class Obedient:
    """Does what it is told, for one job: the simplest dispatcher there can be."""

    limits: Limits
    course: Course = field(default_factory=lambda: at(State.AUDITING))
    queued: bool = False
    runs: list[Course] = field(default_factory=list)
    concluded: int = 0
    reopened: int = 0

    def tell(self, kind: Kind) -> bool:
        """Whether that was possible."""
        event = Event(kind, "chance")
        try:
            course, instructions = handle(self.course, event, self.limits)
        except InvalidTransition:
            return False
        self.course = course
        self.reopened += kind is Kind.RERUN
        if kind is Kind.START:
            self.runs[-1], _ = handle(self.runs[-1], event)
        for instruction in instructions:
            self.do(instruction.do, event)
        return True

    def do(self, do: Do, event: Event) -> None:
        if do is Do.QUEUE:
            assert not self.queued, "queued twice"
            self.queued = True
        elif do is Do.START:
            assert self.queued, "leased and not in the queue"
            self.queued = False
            assert not self.going(), "a second run beside the first"
            self.runs.append(at(State.LEASED, Level.RUN))
        elif do is Do.END_RUN:
            self.runs[-1], _ = handle(self.runs[-1], event)
        elif do is Do.CONCLUDE:
            self.queued = False
            self.concluded += 1

    def going(self) -> list[Course]:
        return [run for run in self.runs if run.state not in ENDS]


KINDS = st.lists(st.sampled_from(list(Kind)), max_size=60)


@given(kinds=KINDS, attempts=st.integers(1, 4))
def test_no_order_of_events_loses_a_job_or_runs_it_twice(kinds: list[Kind], attempts: int) -> None:
    job = Obedient(Limits(attempts=attempts))
    for kind in kinds:
        was = job.course
        changed = job.tell(kind)
        assert changed or job.course == was
        state = job.course.state
        # It is in exactly one place: still to be audited, in the queue, with a run, or at its end.
        places = [state is State.AUDITING, job.queued, bool(job.going()), state in ENDS]
        assert Counter(places)[True] == 1, (state, job)
        assert len(job.going()) <= 1
        assert (state in (State.LEASED, State.RUNNING)) == bool(job.going())
        assert job.concluded == job.reopened + (state in ENDS)
        assert job.course.lost <= attempts


@given(kinds=KINDS, attempts=st.integers(1, 4))
def test_from_wherever_it_is_a_job_comes_to_its_end(kinds: list[Kind], attempts: int) -> None:
    job = Obedient(Limits(attempts=attempts))
    for kind in kinds:
        job.tell(kind)
    for _ in range(2 * attempts + 2):
        if job.course.state in ENDS:
            break
        assert any(job.tell(kind) for kind in (Kind.ACCEPT, Kind.LEASE, Kind.LOSE))
    assert job.course.state in ENDS


def test_a_dispatcher_that_runs_twice_would_be_seen() -> None:
    job = Obedient(Limits())
    for kind in (Kind.ACCEPT, Kind.LEASE):
        assert job.tell(kind)
    job.course = at(State.QUEUED)
    job.queued = True
    with pytest.raises(AssertionError, match="a second run"):
        job.tell(Kind.LEASE)
