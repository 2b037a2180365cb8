"""Notes on the times of a start, skew between ranks, and figures that lie."""

from __future__ import annotations

from typing import Any

import pytest

from service.domain.judge import judge
from service.domain.time_notes import skew
from service.domain.verdict import Verdict
from workers.protocol import Phase, RankTimes

from .healthy import Edit, case, put


def reasons(*edits: Edit) -> tuple[Verdict, list[tuple[Verdict | None, str]]]:
    found = judge(case(*edits))
    return found.verdict, [(reason.finding, reason.text) for reason in found.reasons]


def rest(seconds: float) -> Edit:
    """Rank 1 of the cold start, of 10 s, has so many that belong to no phase."""

    def edit(found: dict[str, Any]) -> None:
        rank = found["compile"]["cold"]["ranks"][1]
        rank["phases"] = [*rank["phases"][:-1], {"name": "exit", "s": 2.0 - seconds}]
        rank["unaccounted_s"] = seconds

    return edit


def test_a_rest_of_more_than_two_per_cent_is_a_note() -> None:
    assert reasons(rest(0.1875)) == (Verdict.PASS, [])
    assert reasons(rest(0.25)) == (Verdict.PASS, [(None, "cold start: 0.25 s of rank 1 (2.5%) belong to no phase")])


def test_a_record_that_is_not_whole_is_a_note() -> None:
    processes = [
        {"pid": 1, "rank": None, "started": None, "spans": [], "problems": ["it wrote no spans"]},
        {"pid": 2, "rank": 1, "started": 1.0, "spans": [], "problems": ["cut"], "not_timed": ["moved"]},
    ]
    assert reasons(put("compile.warm.processes", processes)) == (
        Verdict.PASS,
        [(None, "warm start: the main process: it wrote no spans"), (None, "warm start: rank 1: cut")],
    )


def test_another_kv_cache_cold_than_warm_is_a_note() -> None:
    def blocks(cold: int | None, warm: int | None) -> tuple[Verdict, list[tuple[Verdict | None, str]]]:
        return reasons(put("compile.cold.kv_blocks", cold), put("compile.warm.kv_blocks", warm))

    assert blocks(2048, 2048) == blocks(None, None) == blocks(2048, None) == blocks(None, 7) == (Verdict.PASS, [])
    assert blocks(2048, 1536) == (
        Verdict.PASS,
        [(None, "the KV cache has 2,048 blocks after a cold start and 1,536 after a warm one")],
    )


def test_what_traces_could_not_be_made_is_a_note() -> None:
    traces = {"logs": [], "perfetto": "perfetto.json", "tlparse": None, "notes": ["tlparse made no report"]}
    assert reasons(put("arms.1.traces", traces)) == (Verdict.PASS, [(None, "warm arm: tlparse made no report")])
    assert reasons(put("arms.1.traces", {**traces, "notes": []})) == (Verdict.PASS, [])


def test_a_clock_that_was_set_is_a_note_and_makes_nothing_wrong() -> None:
    assert reasons(put("arms.0.clock_set_by_s", None)) == (Verdict.PASS, [])
    for seconds, words in ((3600.4, "forward by 3,600 s"), (-90.0, "back by 90 s")):
        verdict, ((finding, text),) = reasons(put("arms.0.clock_set_by_s", seconds))
        assert (verdict, finding) == (Verdict.PASS, None)
        assert text == f"cold arm: the machine's clock was set {words} while it ran; no phase and no total hangs on it"


# --- figures that lie -------------------------------------------------------------------------------------------------


def phases(**seconds: float) -> list[dict[str, Any]]:
    """Make 9.875 s in all."""
    other = 9.875 - sum(seconds.values())
    return [{"name": "import", "s": other}, *({"name": name, "s": s} for name, s in seconds.items())]


RANGES = [{"name": "1–512", "s": 3.0, "calls": 1}]


@pytest.mark.parametrize("phase", ["dynamo", "vllm_passes", "inductor_scheduling", "inductor_compile"])
def test_any_phase_that_compiles_is_time_to_compile_in(phase: str) -> None:
    assert reasons(put("compile.cold.ranks.0.phases", phases(**{phase: 1.0}))) == (Verdict.PASS, [])


def test_artifacts_that_were_compiled_in_no_time_are_invalid() -> None:
    verdict, found = reasons(put("compile.cold.ranks.0.phases", phases(cache_load=1.0)))
    assert verdict is Verdict.INVALID_MEASUREMENT
    assert [text for _, text in found] == ["cold start: rank 0: 0 s of compilation with artifacts compiled"]


@pytest.mark.parametrize("phase", ["cache_load", "cache_key", "profile"])
def test_artifacts_are_loaded_in_the_phase_that_loads(phase: str) -> None:
    assert reasons(put("compile.warm.ranks.0.phases", phases(**{phase: 1.0}))) == (Verdict.PASS, [])
    verdict, found = reasons(put("compile.warm.ranks.0.phases", phases(requests=1.0)))
    assert verdict is Verdict.INVALID_MEASUREMENT
    assert [text for _, text in found] == ["warm start: rank 0: 0 s of loading with artifacts loaded"]


@pytest.mark.parametrize("phase", ["inductor_lowering", "inductor_scheduling", "inductor_codegen"])
def test_a_warm_start_that_generates_code_is_invalid(phase: str) -> None:
    verdict, found = reasons(put("compile.warm.ranks.1.phases", phases(cache_load=1.0, **{phase: 1.5})))
    assert verdict is Verdict.INVALID_MEASUREMENT
    assert "rank 1: 1.50 s of code generation with 0 artifacts compiled" in found[0][1]


def test_counters_and_clock_have_seen_the_same_compilations() -> None:
    place = "compile.cold.ranks.1.ranges"
    assert reasons(put(place, RANGES)) == reasons(put(place, None)) == (Verdict.PASS, [])
    verdict, found = reasons(put(place, []))
    assert verdict is Verdict.INVALID_MEASUREMENT
    assert [text for _, text in found] == ["cold start: rank 1: 1 artifacts compiled, and the clock saw 0 compilations"]
    # Of equal subgraphs only one is compiled.
    assert reasons(put(place, [{**RANGES[0], "calls": 3}])) == (Verdict.PASS, [])


def test_phases_that_take_longer_than_the_clock_are_invalid() -> None:
    verdict, found = reasons(put("compile.cold.ranks.0.phases.1.s", 2.5))
    assert verdict is Verdict.INVALID_MEASUREMENT
    assert "phases and rest make 10.50 s of 10.00 s outer wall time" in found[0][1]


# --- skew -------------------------------------------------------------------------------------------------------------


def rank(number: int, **seconds: float) -> RankTimes:
    return RankTimes(
        rank=number, total_s=9.0, phases=[Phase(name=name, s=s) for name, s in seconds.items()], unaccounted_s=0.0
    )


def test_skew_is_by_how_much_the_slowest_is_behind_the_fastest() -> None:
    assert skew([rank(0, dynamo=1.0, inductor_compile=5.0), rank(1, dynamo=1.5, wait=2.0), rank(2, wait=2.0)]) == [
        {"phase": "inductor_compile", "slowest": 0, "s": 5.0, "behind_s": 5.0},
        {"phase": "wait", "slowest": 1, "s": 2.0, "behind_s": 2.0},
        {"phase": "dynamo", "slowest": 1, "s": 1.5, "behind_s": 1.5},
    ]


def test_one_rank_alone_is_behind_nobody() -> None:
    assert skew([rank(0, dynamo=1.0)]) == skew([]) == []


def test_an_arm_that_several_machines_ran_says_which_ranks_ran_where() -> None:
    def edit(found: dict[str, Any]) -> None:
        found["arms"][0]["machines"] = [
            {"host": "a", "node": "0123456789ab", "ranks": [0, 1]},
            {"host": "b", "node": "ba9876543210", "ranks": [2]},
        ]

    said = [text for _, text in reasons(edit)[1] if "machines" in text]
    assert len(said) == 1
    assert said[0].endswith("it ran on 2 machines: ranks 0 to 1 on a (node 01234567); rank 2 on b (node ba987654)")
    assert not [text for _, text in reasons()[1] if "machines" in text]
