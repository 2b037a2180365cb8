"""The time line of each rank: its phases never overlap, and with the unexplained rest they make the wall time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from workers.probes.span_phases import COMPILE_PHASES, phase_of
from workers.probes.spans import ProcessSpans, Span
from workers.probes.timeline import MAIN_PHASES, RawEvent, rank_times
from workers.protocol import Part, RankTimes

MAIN, RANK = 100, 200
"""Process ids; rank 1 is 201."""


def begin(t: float, name: str, rank: int | None = None) -> RawEvent:
    return {"kind": "phase-begin", "t": t, "pid": MAIN if rank is None else RANK + rank, "name": name, "rank": rank}


def end(t: float, name: str, rank: int | None = None) -> RawEvent:
    return {**begin(t, name, rank), "kind": "phase-end"}


def born(t: float, rank: int, started: float, pid: int | None = None) -> RawEvent:
    return {"kind": "rank", "t": t, "pid": RANK + rank if pid is None else pid, "rank": rank, "started": started}


def line(events: Sequence[RawEvent], until: float, spans: Mapping[int, ProcessSpans] | None = None) -> RankTimes:
    """The line of rank 0, of an arm from 0 to ``until``."""
    return rank_times(events, 0.0, until, spans or {})[0]


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


def test_of_a_phase_inside_another_the_inner_one_counts() -> None:
    events = [born(1, 0, started=0, pid=MAIN), begin(1, "outer", 0), begin(2, "inner", 0), end(3, "inner", 0),
              end(5, "outer", 0)]  # fmt: skip
    assert seconds(line(events, 5.0)) == {"launch": 1.0, "outer": 3.0, "inner": 1.0}


def test_of_two_that_overlap_the_earlier_ends_where_the_later_begins() -> None:
    events = [born(0, 0, started=0, pid=MAIN), begin(0, "first", 0), begin(2, "second", 0), end(4, "first", 0),
              end(7, "second", 0)]  # fmt: skip
    assert seconds(line(events, 7.0)) == {"first": 2.0, "second": 5.0}


def test_phases_of_the_same_name_are_one() -> None:
    events = [born(0, 0, started=0, pid=MAIN)]
    for t in (0, 4):
        events += [begin(t, "warm_up", 0), end(t + 3, "warm_up", 0)]
    found = line(events, 7.0)
    assert [(phase.name, phase.s, phase.begin) for phase in found.phases] == [("warm_up", 6.0, 0.0)]
    assert found.unaccounted_s == 1.0


def test_other_phases_of_the_main_process_are_the_ranks_business() -> None:
    assert "start" not in MAIN_PHASES
    assert "start" not in seconds(line(engine(0), 24.0))


def test_nobody_reported_nothing_to_show() -> None:
    assert rank_times([], 0.0, 5.0, {}) == []
    assert rank_times([begin(1, "import")], 0.0, 5.0, {}) == []


# --- what a rank's spans say ------------------------------------------------------------------------------------------


def spanned(*spans: tuple[str, float, float | None], rank: int = 0, thread: int = 0) -> dict[int, ProcessSpans]:
    """Spans of ``rank`` as (name, begin, end), outer ones first."""
    found = ProcessSpans(RANK + rank)
    for name, start, stop in spans:
        around = [one for one in found.spans if one.end is None or one.end > start]
        phase = phase_of(name, around[-1].phase if around else None)
        found.spans.append(Span(name, start, stop, len(around), thread, phase))
    return {found.pid: found}


COMPILING = spanned(
    ("aot_compile", 9.0, 16.0),
    ("vllm_backend", 10.0, 16.0),
    ("compile_range", 10.0, 16.0),
    ("create_aot_dispatcher_function", 10.5, 15.5),
    ("fx_codegen_and_compile", 11.5, 15.5),
    ("GraphLowering.codegen", 12.0, 13.5),
    ("Scheduler.__init__", 12.0, 12.25),
    ("PyCodeCache.load_by_key_path", 13.5, 15.5),
    ("compile_file", 14.0, 15.0),
)


def test_the_profile_run_is_split_into_the_phases_of_compilation() -> None:
    found = line(engine(0), 24.0, COMPILING)
    assert {name: s for name, s in seconds(found).items() if name in (*COMPILE_PHASES, "profile")} == {
        "profile": 3.0, "dynamo": 1.0, "vllm_backend": 1.0, "aot_autograd": 1.0, "inductor_lowering": 0.5,
        "inductor_scheduling": 0.25, "inductor_codegen": 1.25, "inductor_compile": 2.0,
    }  # fmt: skip
    assert found.unaccounted_s == line(engine(0), 24.0).unaccounted_s
    assert {phase.name: phase.begin for phase in found.phases}["dynamo"] == 9.0


def test_what_is_compiled_while_requests_run_is_seen_there() -> None:
    found = seconds(line(engine(0), 24.0, spanned(("dynamo", 20.5, 21.0))))
    assert (found["dynamo"], found["requests"]) == (0.5, 1.5)


def test_a_rank_that_waits_does_what_the_main_process_does() -> None:
    found = line(engine(0), 24.0, spanned(("wait", 18.0, 20.5), ("wait", 20.5, None)))
    assert (seconds(found)["wait"], seconds(found)["requests"], found.unaccounted_s) == (2.0, 2.0, 0.0)


def test_a_rank_in_the_main_process_sets_the_engine_up_itself() -> None:
    alone = [{**event, "pid": RANK} for event in engine(0)]
    found = line(alone, 24.0, spanned(("engine", 4.0, 20.0), ("kv_setup", 8.0, 19.0)))
    assert (seconds(found)["engine"], seconds(found)["profile"], found.unaccounted_s) == (5.0, 10.0, 0.0)
    # Of the main process of other ranks it says nothing: what those did in the meantime is told by themselves.
    assert "engine" not in seconds(line(engine(0), 24.0, {MAIN: spanned(("engine", 4.0, 20.0))[RANK]}))


def test_what_another_thread_loads_is_part_of_the_loading() -> None:
    spans = spanned(("cache_load", 9.0, 15.0))
    spans[RANK].spans.append(Span("PyCodeCache.load_by_key_path", 10.0, 14.0, 0, 1, phase_of("x", "cache_load")))
    assert seconds(line(engine(0), 24.0, spans))["cache_load"] == 6.0
    assert phase_of("PyCodeCache.load_by_key_path", "cache_load") == "cache_load"
    assert phase_of("PyCodeCache.load_by_key_path", "inductor_codegen") == "inductor_compile"


def test_a_span_that_was_not_ended_lasted_until_the_process_was_gone() -> None:
    unended = spanned(("aot_compile", 9.0, 11.0), ("compile_file", 10.0, None))
    killed = [event for event in engine(0) if event["t"] < 10]
    assert seconds(line([*killed, begin(24, "end", 0)], 24.0, unended))["inductor_compile"] == 14.0


def test_a_name_that_nobody_knows_is_part_of_what_it_runs_in() -> None:
    found = seconds(line(engine(0), 24.0, spanned(("bytecode_tracing", 9.0, 12.0), ("new_in_torch_9", 10.0, 11.0))))
    assert (found["dynamo"], found["profile"]) == (3.0, 7.0)
    assert phase_of("new_in_torch_9", None) is None


def test_imports_of_a_rank_end_where_its_first_span_begins() -> None:
    found = seconds(line(engine(0), 24.0, spanned(("plugins", 6.5, 6.75))))
    assert (found["rank_import"], found["rank_init"]) == (1.5, 0.5)
    assert "rank_init" not in seconds(line(engine(0), 24.0))


def test_a_rank_forked_from_a_process_that_has_imported_all_has_next_to_nothing_to_import() -> None:
    forked = [{**event, "started": 6.75} if event["kind"] == "rank" else event for event in engine(0)]
    found = line(forked, 24.0, spanned(("init", 6.75, 7.0)))
    assert (seconds(found)["spawn"], seconds(found)["rank_init"]) == (2.75, 0.25)
    assert "rank_import" not in seconds(found)
    assert found.unaccounted_s == line(engine(0), 24.0).unaccounted_s


def test_the_first_token_ends_a_part_of_the_requests() -> None:
    found = seconds(line([*engine(0), {"kind": "first-token", "t": 20.5, "pid": MAIN}], 24.0))
    assert (found["first_token"], found["requests"]) == (0.5, 1.5)


def test_passes_and_ranges_are_told_by_name() -> None:
    spans = spanned(("pass.vllm.One", 9.0, 9.5), ("pass.vllm.One", 10.0, 10.25), ("pass.shardproof.Two", 11.0, 12.0),
                    ("pass.joint_graph_passes.not_ours", 12.0, 13.0))  # fmt: skip
    spans[RANK].spans.append(Span("compile_range", 9.0, 13.0, 0, 0, None, {"range": "1–512"}))
    found = line(engine(0), 24.0, spans)
    assert found.passes == [Part(name="pass.vllm.One", s=0.75, calls=2), Part(name="pass.shardproof.Two", s=1, calls=1)]
    assert found.ranges == [Part(name="1–512", s=4.0, calls=1)]
    assert (line(engine(0), 24.0).passes, line(engine(0), 24.0).ranges) == (None, None)


def test_each_rank_has_its_own_spans() -> None:
    found = rank_times(engine(0, 1), 0.0, 24.0, spanned(("bytecode_tracing", 9.0, 12.0), rank=1))
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
SPANS = st.builds(
    lambda name, start, length, thread: Span(name, start, None if length is None else start + length, 0, thread,
                                             phase_of(name, None)),
    st.sampled_from(["wait", "dynamo", "compile_file", "unknown", "pass.vllm.One", "cache_load"]), TIMES,
    st.none() | st.integers(0, 200).map(lambda sixteenths: sixteenths / 16), st.integers(0, 1),
)  # fmt: skip


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(st.lists(PHASES | BIRTHS, max_size=24), TIMES, st.integers(0, 400), st.lists(SPANS, max_size=12))
@example(
    [born(1, 0, 0), begin(1, "profile", 0), end(9, "profile", 0), begin(0, "import"), end(5, "import")], 0, 160, []
)
def test_phases_and_the_rest_make_the_wall_time(
    events: list[RawEvent], start: float, sixteenths: int, spans: list[Span]
) -> None:
    stop = start + sixteenths / 16
    found = rank_times(events, start, stop, {pid: ProcessSpans(pid, spans) for pid in (MAIN, RANK, RANK + 1)})
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
    lengths: dict[str, float] = {}
    for name, sixteenths in steps:
        events += [begin(t, name, 0), end(t + sixteenths / 16, name, 0)]
        t += sixteenths / 16
        lengths[name] = lengths.get(name, 0.0) + sixteenths / 16
    found = line(events, t)
    assert [(phase.name, phase.s) for phase in found.phases] == list(lengths.items())
    assert found.unaccounted_s == 0.0


@pytest.mark.parametrize("name", MAIN_PHASES)
def test_what_the_main_process_does_alone_stands_in_every_line(name: str) -> None:
    events = [*engine(0, 1), begin(23, name), end(23.5, name)]
    assert all(seconds(item).get(name, 0.0) >= 0.5 for item in rank_times(events, 0.0, 24.0, {}))
