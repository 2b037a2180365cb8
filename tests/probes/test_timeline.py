"""The time line of each rank: its phases never overlap, and with the unexplained rest they make the wall time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from workers.probes.timeline import COMPILE_PHASES, MAIN_PHASES, RawEvent, rank_times
from workers.protocol import RankTimes

MAIN, RANK = 100, 200
"""Process ids; rank 1 is 201."""


def begin(t: float, name: str, rank: int | None = None) -> RawEvent:
    return {"kind": "phase-begin", "t": t, "pid": MAIN if rank is None else RANK + rank, "name": name, "rank": rank}


def end(t: float, name: str, rank: int | None = None) -> RawEvent:
    return {**begin(t, name, rank), "kind": "phase-end"}


def born(t: float, rank: int, started: float, pid: int | None = None) -> RawEvent:
    return {"kind": "rank", "t": t, "pid": RANK + rank if pid is None else pid, "rank": rank, "started": started}


def line(events: Sequence[RawEvent], until: float, timers: Mapping[str, float] | None = None) -> RankTimes:
    """The line of rank 0, of an arm from 0 to ``until``."""
    return rank_times(events, 0.0, until, {0: timers or {}})[0]


def seconds(found: RankTimes) -> dict[str, float]:
    return {phase.name: phase.s for phase in found.phases}


def engine(*ranks: int) -> list[RawEvent]:
    """A start with a second of its own for each phase of the main process, and rank ``r`` half a second later."""
    events = [
        begin(1, "import"), end(3, "import"),
        begin(3, "config"), end(4, "config"),
        begin(4, "start"),
    ]  # fmt: skip
    for rank in ranks:
        late = rank / 2
        events += [
            born(7 + late, rank, started=5 + late),
            begin(7 + late, "load_model", rank), end(8 + late, "load_model", rank),
            begin(8 + late, "profile", rank), end(18 + late, "profile", rank),
        ]  # fmt: skip
    return [*events, end(20, "start"), begin(20, "requests"), end(22, "requests"), begin(22, "collect"),
            end(23, "collect")]  # fmt: skip


def test_a_rank_is_followed_from_the_launch_to_the_exit() -> None:
    found = line(engine(0), 24.0)
    assert [(phase.name, phase.s) for phase in found.phases] == [
        ("launch", 1.0), ("import", 2.0), ("config", 1.0), ("spawn", 1.0), ("rank_import", 2.0), ("load_model", 1.0),
        ("profile", 10.0), ("requests", 2.0), ("collect", 1.0), ("exit", 1.0),
    ]  # fmt: skip
    # From the end of the profile run to the first request nobody said what he was doing.
    assert (found.rank, found.total_s, found.unaccounted_s) == (0, 24.0, 2.0)


def test_every_rank_has_its_own_line_over_the_same_time() -> None:
    found = rank_times(engine(0, 1), 0.0, 24.0, {})
    assert [item.rank for item in found] == [0, 1]
    assert [item.total_s for item in found] == [24.0, 24.0]
    assert [seconds(item)["spawn"] for item in found] == [1.0, 1.5]
    assert [item.unaccounted_s for item in found] == [2.0, 1.5]


def test_a_rank_in_the_main_process_is_not_spawned() -> None:
    events = [dict(event, pid=MAIN) for event in engine(0)]
    found = line(events, 24.0)
    assert "spawn" not in seconds(found)
    assert "rank_import" not in seconds(found)
    assert seconds(found)["load_model"] == 1.0
    assert found.unaccounted_s == 2.0 + 3.0


def test_a_phase_that_was_not_ended_is_not_explained() -> None:
    whole = line(engine(0), 24.0)
    cut = [event for event in engine(0) if (event["kind"], event.get("name")) != ("phase-end", "profile")]
    found = line(cut, 24.0)
    assert "profile" not in seconds(found)
    assert found.unaccounted_s == whole.unaccounted_s + 10.0


def test_an_end_without_a_beginning_says_nothing() -> None:
    assert seconds(line([end(5, "profile", 0), *engine(0)], 24.0)) == seconds(line(engine(0), 24.0))
    ended_twice = line([*engine(0), end(19.5, "profile", 0)], 24.0)
    assert (seconds(ended_twice)["profile"], ended_twice.unaccounted_s) == (10.0, 2.0)


def test_a_phase_inside_another_is_part_of_it() -> None:
    events = [born(1, 0, started=0, pid=MAIN), begin(1, "outer", 0), begin(2, "inner", 0), end(3, "inner", 0),
              end(5, "outer", 0)]  # fmt: skip
    assert seconds(line(events, 5.0)) == {"launch": 1.0, "outer": 4.0}


def test_of_two_that_overlap_the_later_begins_where_the_earlier_ends() -> None:
    events = [born(0, 0, started=0, pid=MAIN), begin(0, "first", 0), begin(2, "second", 0), end(4, "first", 0),
              end(7, "second", 0)]  # fmt: skip
    assert seconds(line(events, 7.0)) == {"first": 4.0, "second": 3.0}


def test_phases_of_the_same_name_each_count() -> None:
    events = [born(0, 0, started=0, pid=MAIN)]
    for t in (0, 4):
        events += [begin(t, "warm_up", 0), end(t + 3, "warm_up", 0)]
    found = line(events, 7.0)
    assert [(phase.name, phase.s) for phase in found.phases] == [("warm_up", 3.0), ("warm_up", 3.0)]
    assert found.unaccounted_s == 1.0


def test_other_phases_of_the_main_process_are_the_ranks_business() -> None:
    assert "start" not in MAIN_PHASES
    assert "start" not in seconds(line(engine(0), 24.0))


def test_nobody_reported_nothing_to_show() -> None:
    assert rank_times([], 0.0, 5.0, {}) == []
    assert rank_times([begin(1, "import")], 0.0, 5.0, {}) == []


# --- what the profile run is made of ---------------------------------------------------------------------------------

TIMERS = {
    "bytecode_tracing": 1.0,
    "create_aot_dispatcher_function": 7.5,
    "compile_fx_inner": 6.0,
    "GraphLowering.codegen": 1.5,
    "PyCodeCache.load_by_key_path": 4.0,
}


def test_the_profile_run_is_split_into_the_phases_of_compilation() -> None:
    found = seconds(line(engine(0), 24.0, TIMERS))
    assert {name: found[name] for name in (*COMPILE_PHASES, "profile")} == {
        "dynamo": 1.0, "aot_autograd": 1.5, "inductor_lowering": 0.5, "inductor_codegen": 1.5, "inductor_compile": 4.0,
        "profile": 1.5,
    }  # fmt: skip
    assert line(engine(0), 24.0, TIMERS).unaccounted_s == line(engine(0), 24.0).unaccounted_s


def test_timers_that_say_more_than_the_profile_run_took_are_cut() -> None:
    found = line(engine(0), 24.0, {"bytecode_tracing": 8.0, "PyCodeCache.load_by_key_path": 8.0})
    split = seconds(found)
    assert (split["dynamo"], split["inductor_compile"], split["profile"]) == (8.0, 2.0, 0.0)
    assert found.unaccounted_s == 2.0


def test_a_timer_shorter_than_what_runs_inside_it_counts_as_none() -> None:
    assert "aot_autograd" not in seconds(line(engine(0), 24.0, {"compile_fx_inner": 2.0}))


def test_each_rank_has_its_own_timers() -> None:
    found = rank_times(engine(0, 1), 0.0, 24.0, {1: {"bytecode_tracing": 3.0}})
    assert ["dynamo" in seconds(item) for item in found] == [False, True]


# --- any events ------------------------------------------------------------------------------------------------------

# Sixteenths of a second are exact in binary, so that sums can be compared exactly.
TIMES = st.integers(-32, 400).map(lambda sixteenths: sixteenths / 16)
NAMES = st.sampled_from(["import", "config", "start", "requests", "collect", "shutdown", "profile", "kv_cache"])
PHASES = st.builds(
    lambda kind, t, name, rank: (begin if kind else end)(t, name, rank),
    st.booleans(), TIMES, NAMES, st.sampled_from([None, 0, 1]),
)  # fmt: skip
BIRTHS = st.builds(born, TIMES, st.sampled_from([0, 1]), TIMES, st.sampled_from([None, MAIN]))
TIMER_SECONDS = st.dictionaries(st.sampled_from(list(TIMERS)), st.integers(0, 200).map(lambda n: n / 16))


@settings(deadline=None, max_examples=300)
@given(st.lists(PHASES | BIRTHS, max_size=24), TIMES, st.integers(0, 400), TIMER_SECONDS)
@example(
    [born(1, 0, 0), begin(1, "profile", 0), end(9, "profile", 0), begin(0, "import"), end(5, "import")], 0, 160, {}
)
def test_phases_and_the_rest_make_the_wall_time(
    events: list[RawEvent], start: float, sixteenths: int, timers: dict[str, float]
) -> None:
    stop = start + sixteenths / 16
    found = rank_times(events, start, stop, {0: timers, 1: timers})
    assert [item.rank for item in found] == sorted({event["rank"] for event in events if event["kind"] == "rank"})
    for item in found:
        assert item.total_s == stop - start
        assert all(phase.s >= 0 for phase in item.phases)
        explained = sum(Fraction(phase.s) for phase in item.phases)
        assert explained + Fraction(item.unaccounted_s) == Fraction(item.total_s)
        # No second is counted twice: then the rest would be negative.
        assert item.unaccounted_s >= 0


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(NAMES, st.integers(1, 50)), min_size=1, max_size=8))
def test_phases_one_after_the_other_keep_their_lengths(steps: list[tuple[str, int]]) -> None:
    events: list[Any] = [born(0, 0, started=0, pid=MAIN)]
    t = 0.0
    for name, sixteenths in steps:
        events += [begin(t, name, 0), end(t + sixteenths / 16, name, 0)]
        t += sixteenths / 16
    found = line(events, t)
    assert [(phase.name, phase.s) for phase in found.phases] == [(name, n / 16) for name, n in steps]
    assert found.unaccounted_s == 0.0


@pytest.mark.parametrize("name", MAIN_PHASES)
def test_what_the_main_process_does_alone_stands_in_every_line(name: str) -> None:
    events = [*engine(0, 1), begin(23, name), end(23.5, name)]
    assert all(seconds(item).get(name, 0.0) >= 0.5 for item in rank_times(events, 0.0, 24.0, {}))
