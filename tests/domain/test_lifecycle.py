"""How far a cell got: every step of the table may be taken, and no other."""

from __future__ import annotations

import itertools

import pytest

from service.domain.lifecycle import TRANSITIONS, InvalidTransition, State, step

ENDS = {State.FINISHED, State.FAILED, State.CRASHED, State.TIMED_OUT, State.CANCELLED}

ALLOWED = {
    "auditing": {"queued", "failed", "crashed", "cancelled"},
    "queued": {"leased", "cancelled", "finished", "crashed"},
    "leased": {"running", "queued", "crashed", "cancelled"},
    "running": {"finished", "failed", "crashed", "timed_out", "cancelled"},
}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(State, State)))
def test_a_step_may_be_taken_if_and_only_if_it_is_in_the_table(before: State, after: State) -> None:
    if after in ALLOWED.get(before, set()):
        assert step("cell c1", before, after) is after
    else:
        with pytest.raises(InvalidTransition):
            step("cell c1", before, after)


def test_every_state_has_its_row() -> None:
    assert set(TRANSITIONS) == set(State)


def test_what_has_ended_stays_as_it_is() -> None:
    assert {state for state in State if state.ended} == ENDS
    assert not any(TRANSITIONS[state] for state in ENDS)


@pytest.mark.parametrize("start", [state for state in State if state not in ENDS])
def test_every_state_leads_to_an_end(start: State) -> None:
    reached, fresh = {start}, {start}
    while fresh:
        fresh = {after for before in fresh for after in TRANSITIONS[before]} - reached
        reached |= fresh
    assert reached & ENDS


def test_an_invalid_step_tells_its_story() -> None:
    with pytest.raises(InvalidTransition) as caught:
        step("cell c1", State.LEASED, State.FINISHED)
    expected = (
        "cell c1 is leased and cannot become finished; from here it may become: cancelled, crashed, queued, running"
    )
    assert str(caught.value) == expected


def test_an_invalid_step_from_an_end_says_that_it_has_ended() -> None:
    with pytest.raises(InvalidTransition, match="nothing, it has ended"):
        step("run r1", State.CANCELLED, State.RUNNING)
