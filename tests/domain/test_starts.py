"""Several starts of a kind: each is judged, and a warm one owes what the first cold one saved."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

import pytest

from domain.healthy import Edit, case, compile_times, output, put
from service.domain.judge import judge
from service.domain.verdict import Verdict
from workers.protocol import Check, Role

COLD, WARM = compile_times(1, 0, 1), compile_times(0, 1, 0)
FLIP = {"request": 1, "position": 2, "expected": 7, "found": 9, "margin": 0.5}


def start(role: Role, repeat: int) -> dict[str, Any]:
    answers = output(Role.COLD, Role.WARM) if role is Role.WARM else None
    return {"role": role, "repeat": repeat, "times": deepcopy(COLD if role is Role.COLD else WARM), "outputs": answers}


def starts(found: dict[str, Any]) -> None:
    found["compile"]["starts"] = [start(role, repeat) for role in (Role.COLD, Role.WARM) for repeat in (1, 2)]


KEY = {"rank": 0, "part": "backbone"}
CHANGED = {"name": "env.VLLM_X", "cold": "false", "warm": "true"}
LAST = "compile.starts.3"

DEFECTS: dict[str, tuple[Edit, str]] = {
    "a later cold start that loaded": (put("compile.starts.1.times.artifacts.ranks.1.loaded", 1),
                                       "cold start 2: rank 1 is not cold: 1 artifacts saved, 1 loaded, 1 compiled"),
    "nothing loaded": (put(f"{LAST}.times.artifacts.ranks.0.loaded", 0),
                       "warm start 2: rank 0 is not warm: it loaded 0 artifacts of the 1 that the cold start saved$"),
    "less loaded than saved": (put("compile.starts.0.times.artifacts.ranks.1.saved", 3),
                               "rank 1 is not warm: it loaded 1 artifacts of the 3 that the cold start saved$"),
    "something saved": (put(f"{LAST}.times.artifacts.ranks.1.saved", 2), "rank 1 is not warm: it saved 2$"),
    "something compiled": (put(f"{LAST}.times.artifacts.ranks.1.compiled", 4), "rank 1 is not warm: it compiled 4$"),
    "compiled before it began": (put("compile.starts.1.times.artifacts.ranks.1.held_before", ["kernels in C++"]),
                                 "cold start 2: rank 1 held what was compiled before it began: kernels in C.."),
    "all three": (put(f"{LAST}.times.artifacts.ranks.1", {"rank": 1, "saved": 1, "loaded": 0, "compiled": 1}),
                  "rank 1 is not warm: it loaded 0 artifacts of the 1 that the cold start saved, saved 1 and compiled"),
    "a factor": (put(f"{LAST}.cache_keys", [KEY | {"changed": [CHANGED]}]),
                 "warm start 2: cache key of rank 0: changed since the cold start: env.VLLM_X false → true$"),
    "the same factor on both ranks": (
        put(f"{LAST}.cache_keys", [KEY | {"changed": [CHANGED]}, KEY | {"rank": 1, "changed": [CHANGED]}]),
        "cache key of rank 0 and 1: changed"),
    "many factors": (put(f"{LAST}.cache_keys", [KEY | {"changed": [CHANGED] * 7}]), "; and 2 more$"),
    "no factor": (put(f"{LAST}.cache_keys", [KEY]), "no factor that vLLM notes has changed"),
    "a key nobody can read": (put(f"{LAST}.cache_keys", [KEY | {"problem": "cut off"}]), "rank 0: cut off$"),
    "other tokens": (put(f"{LAST}.outputs", output(Role.COLD, Role.WARM) | {"klass": "flip", "first_difference": FLIP}),
                     "warm start 2: other tokens than the cold start: request 1, position 2, token 9 where 7 was$"),
    "other tokens nobody placed": (put(f"{LAST}.outputs.klass", "flip"), "other tokens than the cold start$"),
    "no numbers": (put(f"{LAST}.outputs.klass", "garbage"), "not a finite number"),
    "no tokens": (put(f"{LAST}.outputs.compared_tokens", 0), "were not compared with the cold start's: no tokens"),
    "other requests": (put(f"{LAST}.outputs", output(Role.COLD, Role.WARM) | {"klass": None, "problem": "others"}),
                       "were not compared with the cold start's: others"),
    "a full disk": (put("compile.starts.0.cache_problem", "no space"), "cold start 1: what was compiled .* no space"),
    "a sum that is none": (put("compile.starts.0.times.artifacts.saved", 5), "5 artifacts saved in all, and 2 by the"),
    "0 s of loading": (put(f"{LAST}.times.ranks.1.phases", [{"name": "import", "s": 8.0}]),
                       "warm start 2: rank 1: 0 s of loading with artifacts loaded"),
    "code generated": (put(f"{LAST}.times.ranks.1.phases.0.name", "inductor_codegen"),
                       "warm start 2: rank 1: 2.00 s of code generation with 0 artifacts compiled"),
    "a phase that ran backwards": (put(f"{LAST}.times.ranks.1.phases.0.s", -2.0), "the phase import took -2.00 s"),
    "a start without time": (put("compile.starts.1.times.total_s", 0.0), "cold start 2: 0 s of outer wall time"),
    "a rank too few": (put(f"{LAST}.times.ranks", WARM["ranks"][:1]), r"ranks \[0, 1\] reported where 2 ran"),
    "one forked, one not": (lambda found: [one["times"].update(forked=number == 0)
                                           for number, one in enumerate(found["compile"]["starts"][:2])],
                            "1 of 2 cold starts were forked from a process that had imported vLLM and the others imp"),
    "no warm start": (lambda found: found["compile"].update(starts=found["compile"]["starts"][:2]),
                      "no warm start was timed"),
}  # fmt: skip


@pytest.mark.parametrize("forked", [(True, True), (False, False), (None, None), (True, None)])
def test_starts_begun_alike_share_a_median(forked: tuple[bool | None, bool | None]) -> None:
    """One of which nobody noted how it was begun is no contradiction."""

    def edit(found: dict[str, Any]) -> None:
        starts(found)
        for one, value in zip(found["compile"]["starts"], forked, strict=False):
            one["times"]["forked"] = value

    assert judge(case(edit)).verdict is Verdict.PASS


def test_several_healthy_starts_pass() -> None:
    judged = judge(case(starts))
    assert (judged.verdict, judged.reasons) == (Verdict.PASS, ())


@pytest.mark.parametrize(("defect", "words"), DEFECTS.values(), ids=DEFECTS)
def test_one_start_that_lies_is_enough(defect: Edit, words: str) -> None:
    judged = judge(case(starts, defect))
    assert judged.verdict is Verdict.INVALID_MEASUREMENT
    assert any(re.search(words, reason.text) for reason in judged.reasons), judged.reasons


@pytest.mark.parametrize("defect", [edit for edit, _ in DEFECTS.values()], ids=DEFECTS)
def test_who_asks_for_no_times_is_not_told_of_them(defect: Edit) -> None:
    checks = (Check.RESIDUAL, Check.OUTPUTS)
    assert judge(case(starts, defect, checks=checks)).verdict is Verdict.PASS


def test_a_single_start_has_no_number() -> None:
    def once(found: dict[str, Any]) -> None:
        found["compile"]["starts"] = [start(Role.COLD, 1), start(Role.WARM, 1)]

    saved = [put(f"compile.starts.1.times.artifacts.{place}saved", 1) for place in ("", "ranks.0.")]
    judged = judge(case(once, *saved))
    assert [reason.text for reason in judged.reasons] == ["warm start: rank 0 is not warm: it saved 1"]


def test_log_probabilities_that_drift_are_a_note() -> None:
    drift = put(f"{LAST}.outputs", output(Role.COLD, Role.WARM) | {"klass": "drift", "worst_logprob_difference": 0.5})
    judged = judge(case(starts, drift))
    assert judged.verdict is Verdict.PASS
    assert [(reason.finding, reason.text) for reason in judged.reasons] == [
        (None, "warm start 2: the cold start's tokens, log-probabilities drift by 0.5")
    ]


def test_a_warm_start_is_held_against_the_cold_one_whose_cache_it_has() -> None:
    """The first; another cold start that saved more is no measure."""
    assert judge(case(starts, put("compile.starts.1.times.artifacts.ranks.0.saved", 3))).verdict is not Verdict.PASS
    more = [put(f"compile.starts.1.times.artifacts.{place}", value) for place, value in
            (("ranks.0.saved", 3), ("saved", 4))]  # fmt: skip
    assert judge(case(starts, *more)).verdict is Verdict.PASS
