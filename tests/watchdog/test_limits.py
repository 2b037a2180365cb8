"""Which limit is reached first, and who holds the others up."""

from __future__ import annotations

from typing import Any

import pytest

from workers.watchdog.causes import Cause, Reading
from workers.watchdog.finding import held_up_by
from workers.watchdog.frames import Frame
from workers.watchdog.limits import Expiry, Limit, Limits
from workers.watchdog.phases import Phases, Rank


def phases(*events: tuple[str, float, Rank, str | None]) -> Phases:
    """Of events (kind, t, rank, name)."""
    found = Phases()
    found.note({"kind": kind, "t": t, "rank": rank, "name": name} for kind, t, rank, name in events)
    return found


BEGIN, END = "phase-begin", "phase-end"
START = (BEGIN, 11.0, None, "start")
BORN = (("rank", 12.0, 0, None), ("rank", 12.0, 1, None))


def test_an_arm_without_other_limits_has_its_own() -> None:
    assert Limits(60).next(10.0, phases(START)) == Expiry(Limit.ARM, 60, 70.0)


def test_the_rank_that_stands_longest_reaches_the_limit_of_a_phase_first() -> None:
    found = phases(START, *BORN, (BEGIN, 20.0, 0, "load"), (BEGIN, 15.0, 1, "load"))
    assert Limits(60, phase=30).next(10.0, found) == Expiry(Limit.PHASE, 30, 45.0, 1)


def test_a_phase_inside_another_is_movement() -> None:
    found = phases(START, *BORN, (BEGIN, 15.0, 1, "profile"), (BEGIN, 16.0, 1, "range"), (END, 22.0, 1, "range"))
    assert Limits(60, phase=30).next(10.0, found).at == 52.0


@pytest.mark.parametrize(("last", "at"), [((), 41.0), (((BEGIN, 14.0, 0, "load"), (END, 18.0, 0, "load")), 48.0)])
def test_the_main_process_stands_since_anybody_moved(last: Any, at: float) -> None:
    assert Limits(60, phase=30).next(10.0, phases(START, *BORN, *last)) == Expiry(Limit.PHASE, 30, at)


def test_nobody_stands_in_a_phase_that_has_ended() -> None:
    assert Limits(60, phase=1).next(10.0, phases(START, (END, 12.0, None, "start"))).limit is Limit.ARM
    assert Limits(60, phase=1).next(10.0, Phases()).limit is Limit.ARM


def test_silence_counts_from_the_last_event_or_the_start() -> None:
    assert Limits(60, silence=20).next(10.0, Phases()) == Expiry(Limit.SILENCE, 20, 30.0)
    assert Limits(60, silence=20).next(10.0, phases(START, *BORN)).at == 32.0


# --- who holds the others up -----------------------------------------------------------------------------------------

FRAME = Frame("f", "file.py", 1)
WAITS = {cause: Reading(cause, FRAME) for cause in Cause}
UNKNOWN, BROADCAST, COLLECTIVE, FORMATTING = (
    WAITS[Cause.UNKNOWN],
    WAITS[Cause.BROADCAST],
    WAITS[Cause.COLLECTIVE],
    WAITS[Cause.FORMATTING],
)
PROFILING = (START, *BORN, (BEGIN, 15.0, 0, "profile"), (BEGIN, 16.0, 1, "profile"))
SERVING = (START, *BORN, (END, 20.0, None, "start"), (BEGIN, 21.0, None, "requests"))


@pytest.mark.parametrize(
    ("events", "readings", "rank"),
    [
        # Some wait: it is one that does not, however long the others have been in their phase.
        (PROFILING, {None: BROADCAST, 0: COLLECTIVE, 1: FORMATTING}, 1),
        (PROFILING, {None: BROADCAST, 0: COLLECTIVE, 1: UNKNOWN}, 1),
        (PROFILING, {None: BROADCAST, 0: UNKNOWN, 1: COLLECTIVE}, 0),
        # Its stack could not be had: it is not known to wait.
        (PROFILING, {None: BROADCAST, 0: COLLECTIVE}, 1),
        # Nobody waits: the one that is longest in its phase.
        (PROFILING, {None: BROADCAST, 0: UNKNOWN, 1: FORMATTING}, 0),
        (PROFILING, {}, 0),
        # In no phase of their own.
        (SERVING, {None: BROADCAST, 0: COLLECTIVE, 1: UNKNOWN}, 1),
        (SERVING, {None: UNKNOWN, 0: BROADCAST, 1: BROADCAST}, None),
        (SERVING, {None: UNKNOWN, 0: UNKNOWN, 1: UNKNOWN}, None),
        # All wait for each other.
        (PROFILING, {None: BROADCAST, 0: COLLECTIVE, 1: COLLECTIVE}, 0),
        (SERVING, {None: BROADCAST, 0: COLLECTIVE, 1: COLLECTIVE}, None),
        ((START,), {None: UNKNOWN}, None),
    ],
)
def test_the_rank_that_the_others_wait_for(events: Any, readings: dict[Rank, Reading], rank: Rank) -> None:
    assert held_up_by(readings, phases(*events)) == rank
