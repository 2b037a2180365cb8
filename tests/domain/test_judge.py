"""Every rule of the judge, each beside its negative control: the same case without the defect passes without a word."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.domain.case import Judgement, Reason
from service.domain.findings import COMPILER_PHASES, how_it_ended, shared_arm
from service.domain.judge import conclude, judge, judge_again
from service.domain.verdict import Verdict
from workers.probes.span_phases import COMPILE_PHASES
from workers.protocol import Change, Check, Evidence, Failure, Outcome, Patch, PatchMode, Policy, Role

from .healthy import (
    CHECKS,
    HIDDEN,
    RANKS,
    SCENARIOS,
    SITES,
    SP,
    TOKENS,
    Edit,
    again,
    arm,
    case,
    evidence,
    invariant,
    output,
    put,
    residual,
    shape,
)

GRAVITY = (
    "crashed", "timed-out", "fail-residual", "fail-output", "fail-guard", "invalid-measurement", "unsupported",
    "not-exercised", "regression", "downgraded", "duplicate", "cancelled", "skipped", "pass",
)  # fmt: skip


@pytest.mark.parametrize(("checks", "sp"), SCENARIOS.values(), ids=SCENARIOS)
def test_a_complete_and_healthy_case_passes_without_a_word(checks: tuple[Check, ...], sp: bool) -> None:
    found = judge(case(checks=checks, sp=sp))
    assert (found.verdict, found.ok, found.reasons) == (Verdict.PASS, True, ())


# --- one defect, one verdict -----------------------------------------------------------------------------------------

DIVERGENCE = {"site": "1.attn", "rank": 1, "step": 3, "pattern": "slice-of-rank-0", "tokens": 2, "score": 9.0}
FLIP = {"request": 1, "position": 2, "expected": 7, "found": 9, "margin": 0.5}

DEFECTS: dict[str, tuple[Edit, str, str]] = {
    # residual
    "a divergence": (put("residual.0.first_divergence", DIVERGENCE), "fail-residual", "site 1.attn on rank 1, step 3"),
    "control diverges": (put("residual.1.first_divergence", DIVERGENCE), "invalid-measurement", "itself wrong"),
    "no residual": (put("residual", []), "invalid-measurement", "the probe arm was not compared with the replicated"),
    "a gap": (put("residual.0.missing", ["step 0, site embed, rank 1"]), "invalid-measurement", "site embed, rank 1"),
    "a site too few": (put("residual.0.sites", SITES - 1), "invalid-measurement", "4 sites where 5 belong"),
    "a rank too few": (put("residual.0.ranks", 1), "invalid-measurement", "1 ranks where 2 belong"),
    "numbers too few": (put("residual.0.elements", 7), "invalid-measurement", "7 numbers where 9280 belong"),
    "no step": (put("residual.0.steps", 0), "invalid-measurement", "0 steps"),
    "bits not equal": (put("residual.0.bitwise_equal", False), "invalid-measurement", "bit equality is owed"),
    "score too high": (put("residual.1.worst_score", 3.01), "invalid-measurement", "worst score is 3.01 .* at most"),
    "copies differ": (put("residual.1.replicas_equal", False), "invalid-measurement", "copies were not found equal"),
    "not run twice": (lambda found: found["residual"].pop(2), "invalid-measurement",
                      "residual of the replicated arm was not compared with the replicated arm's"),
    "not the same twice": (put("residual.2.first_divergence", DIVERGENCE),
                           "invalid-measurement", "not the same when it is run twice"),
    "no bits twice": (put("residual.2.bitwise_equal", False), "invalid-measurement", "bit equality is owed"),
    "rows too few": (put("residual.0", residual(Role.PROBE, Role.REPLICATED)
                         | {"scattered_rows": 100, "replicated_rows": 44}),
                     "invalid-measurement", "144 tokens over all sites where 145 belong"),
    "copies counted as parts": (put("residual.1", residual(Role.REPLICATED, Role.REFERENCE)
                                    | {"scattered_rows": 145, "replicated_rows": 0, "elements": 145 * 64}),
                                "invalid-measurement", "145 rows were compared as parts where every rank holds all"),
    # invariants
    "an invariant broken": (put("invariants.4", invariant("gathered-equal", False)), "fail-residual",
                            "gathered-equal does not hold in the probe arm: seven compared"),
    "one of the control": (lambda found: found["invariants"].append(invariant("graphs-equal", False, Role.REPLICATED)),
                           "invalid-measurement", "graphs-equal does not hold in the replicated arm"),
    "one not looked at": (lambda found: found["invariants"].pop(2), "invalid-measurement",
                          "the invariant replicas-equal was not looked at"),
    "one not checkable": (put("invariants.1", invariant("token-order", None)), "invalid-measurement",
                          "the invariant token-order could not be checked: seven"),
    # outputs
    "answers not the same twice": (put("outputs.2.klass", "drift"), "invalid-measurement",
                                   "does not answer the same when it is run twice: drift"),
    "answers not asked twice": (lambda found: found["outputs"].pop(2), "invalid-measurement", "was not run twice"),
    "no outputs": (put("outputs", []), "invalid-measurement", "not compared with the reference arm's"),
    "not comparable": (put("outputs.0", output(Role.REPLICATED) | {"klass": None, "problem": "other requests"}),
                       "invalid-measurement", "were not compared: other requests"),
    "no tokens": (put("outputs.0.compared_tokens", 0), "invalid-measurement", "were not compared: no tokens"),
    "garbage": (put("outputs.0.klass", "garbage"), "fail-output", "not a finite number"),
    "a flip": (put("outputs.0", output(Role.REPLICATED) | {"klass": "flip", "first_difference": FLIP}),
               "fail-output", "request 1, position 2: token 9 where 7 belongs, margin 0.5"),
    "a flip of unknown margin": (
        put("outputs.0", output(Role.REPLICATED) | {"klass": "flip", "first_difference": FLIP | {"margin": None}}),
        "fail-output", "margin unknown"),
    "a flip nobody placed": (put("outputs.0.klass", "flip"), "fail-output", "a token differs"),
    # guards and patches
    "a guard gone": (put("guards.0.held", False), "fail-guard", "guard sp-pass does not hold: asserts"),
    "a target missing": (put("patches.full_graph_sp", "target-missing"), "invalid-measurement", "patch-target-missing"),
    # compile
    "no cold start": (put("compile.cold", None), "invalid-measurement", "no cold start was timed"),
    "no warm start": (put("compile.warm", None), "invalid-measurement", "no warm start was timed"),
    "warm cold start": (put("compile.cold.artifacts.ranks.1.loaded", 1), "invalid-measurement", "rank 1 is not cold"),
    "none compiled": (put("compile.cold.artifacts.ranks.0.compiled", 0), "invalid-measurement", "rank 0 is not cold"),
    "cold warm start": (put("compile.warm.artifacts.ranks.1.compiled", 1), "invalid-measurement", "rank 1 is not warm"),
    "nothing loaded": (put("compile.warm.artifacts.ranks.0.loaded", 0), "invalid-measurement", "rank 0 is not warm"),
    "0 s": (put("compile.warm.total_s", 0.0), "invalid-measurement", "0 s of outer wall time"),
    "0 s of compilation": (put("compile.cold.ranks.1.phases", [{"name": "import", "s": 8.0}]),
                           "invalid-measurement", "rank 1: 0 s of compilation with artifacts compiled"),
    "lost time": (put("compile.cold.ranks.0.unaccounted_s", 1.0), "invalid-measurement", "rank 0: phases and rest"),
    "overlapping phases": (put("compile.cold.ranks.1", {"rank": 1, "total_s": 10.0, "unaccounted_s": -1.0,
                                                        "phases": [{"name": "dynamo", "s": 11.0}]}),
                           "invalid-measurement", "rank 1: phases overlap by 1.00 s"),
    # exercised
    "no graph": (put(SP, None), "not-exercised", "no graph was compiled for it"),
    "nothing to rewrite": (put(f"{SP}.expected", 0), "not-exercised", "holds nothing for it to rewrite"),
    "one rewrite short on one rank": (put(f"{SP}.per_rank", [5, 4]), "not-exercised", r"rewrote \[5, 4\] of 5"),
    "a silent rank": (put(f"{SP}.per_rank", [5]), "invalid-measurement", "1 ranks told .* where 2 ran"),
}  # fmt: skip


@pytest.mark.parametrize(("defect", "verdict", "words"), DEFECTS.values(), ids=DEFECTS)
def test_one_defect_has_its_verdict_and_its_words(defect: Edit, verdict: str, words: str) -> None:
    found = judge(case(defect))
    assert found.verdict == verdict
    assert not found.ok
    assert any(reason.finding == verdict and re.search(words, reason.text) for reason in found.reasons), found.reasons


@pytest.mark.parametrize("check", [Check.COMPILE, Check.RESIDUAL, Check.OUTPUTS])
def test_what_no_check_asks_for_is_not_missed(check: Check) -> None:
    others = tuple(other for other in CHECKS if other is not check)
    without = {Check.COMPILE: put("compile", {"cold": None, "warm": None}), Check.RESIDUAL: put("residual", []),
               Check.OUTPUTS: put("outputs", [])}[check]  # fmt: skip
    assert judge(case(without)).verdict is Verdict.INVALID_MEASUREMENT
    asked_less = replace(case(without), checks=others)
    assert judge(asked_less).verdict is Verdict.PASS


@pytest.mark.parametrize("margin", [1e-3, -1e-3, 0.0])
def test_a_tie_is_a_note(margin: float) -> None:
    difference = FLIP | {"margin": margin}
    tie = put("outputs.0", output(Role.REPLICATED) | {"klass": "flip", "first_difference": difference})
    found = judge(case(tie))
    assert found.verdict is Verdict.PASS
    assert [(reason.finding, reason.text[-7:]) for reason in found.reasons] == [(None, "(a tie)")]
    stricter = judge(case(tie, put("policy", {"flip_margin": 1e-9})))
    assert (stricter.verdict is Verdict.FAIL_OUTPUT) is (margin != 0.0)


@pytest.mark.parametrize(("drift", "amount"), [(0.25, "0.25"), (None, "an unknown amount")])
def test_drift_is_a_note(drift: float | None, amount: str) -> None:
    drifts = output(Role.REFERENCE) | {"klass": "drift", "worst_logprob_difference": drift}
    found = judge(case(put("outputs.1", drifts)))
    assert found.verdict is Verdict.PASS
    assert [(reason.finding, reason.text.endswith(f"drift by {amount}")) for reason in found.reasons] == [(None, True)]


def test_a_guard_taken_away_on_request_is_a_note() -> None:
    asked_off = dict.fromkeys(Patch, PatchMode.ON) | {Patch.FULL_GRAPH_SP: PatchMode.OFF}
    gone = put("guards.0.held", False)
    removed = both(gone, put("patches.full_graph_sp", "removed"))
    found = judge(case(removed, patches=asked_off))
    assert found.verdict is Verdict.PASS
    assert [reason.finding for reason in found.reasons] == [None]
    other_off = dict.fromkeys(Patch, PatchMode.ON) | {Patch.FALLBACK_FAST_PATH: PatchMode.OFF}
    other_removed = both(gone, put("patches.fallback_fast_path", "removed"))
    assert judge(case(other_removed, patches=other_off)).verdict is Verdict.FAIL_GUARD


def test_a_guard_that_cannot_be_checked_is_no_finding() -> None:
    assert judge(case(put("guards.0.held", None))).verdict is Verdict.PASS


def both(first: Edit, second: Edit) -> Edit:
    def edit(evidence: dict[str, Any]) -> None:
        first(evidence)
        second(evidence)

    return edit


@pytest.mark.parametrize(
    ("asked", "found", "fine"),
    [
        ("on", "native", True),
        ("on", "applied", True),
        ("on", "removed", False),
        ("on", "absent", False),
        ("off", "removed", True),
        ("off", "native", False),
        ("native", "native", True),
        ("native", "absent", True),
        ("native", "removed", False),
    ],
)
def test_a_patch_is_in_the_state_that_was_asked_for(asked: str, found: str, fine: bool) -> None:
    patches = dict.fromkeys(Patch, PatchMode.ON) | {Patch.FALLBACK_FAST_PATH: PatchMode(asked)}
    verdict = judge(case(put("patches.fallback_fast_path", found), patches=patches)).verdict
    assert verdict is (Verdict.PASS if fine else Verdict.INVALID_MEASUREMENT)


@pytest.mark.parametrize("mode", PatchMode)
def test_a_version_without_sp_has_nothing_to_guard(mode: PatchMode) -> None:
    patches = dict.fromkeys(Patch, PatchMode.ON) | {Patch.FULL_GRAPH_SP: mode}
    absent = put("patches.full_graph_sp", "absent")
    found = judge(case(absent, checks=(Check.COMPILE,), sp=False, patches=patches))
    assert found.verdict is Verdict.PASS
    assert [reason.finding for reason in found.reasons] == [None]
    # Where SP runs, guards that are not there were not brought there.
    with_sp = judge(case(absent, patches=patches)).verdict
    assert with_sp is (Verdict.PASS if mode is PatchMode.NATIVE else Verdict.INVALID_MEASUREMENT)


def test_what_is_worth_knowing_of_a_cell_is_a_note() -> None:
    found = judge(case(notes=("vLLM 0.32.0 has no sequence parallelism",)))
    assert found.verdict is Verdict.PASS
    assert [(reason.finding, reason.text) for reason in found.reasons] == [
        (None, "vLLM 0.32.0 has no sequence parallelism")
    ]


def test_a_cell_that_was_never_run_has_its_one_reason() -> None:
    why = Reason(Verdict.UNSUPPORTED, "no such setting")
    assert conclude([why], (Verdict.UNSUPPORTED,)) == Judgement(Verdict.UNSUPPORTED, True, (why,))
    assert not conclude([why], (Verdict.PASS,)).ok


def test_a_patch_of_unknown_state_proves_nothing() -> None:
    assert judge(case(put("patches", {}))).verdict is Verdict.INVALID_MEASUREMENT


def test_an_absent_patch_is_a_note() -> None:
    native = dict.fromkeys(Patch, PatchMode.NATIVE)
    found = judge(case(put("patches.fallback_fast_path", "absent"), patches=native))
    assert (found.verdict, [reason.finding for reason in found.reasons]) == (Verdict.PASS, [None])


def test_a_configuration_that_does_not_compile_has_nothing_to_time() -> None:
    untimed = put("compile", {"cold": None, "warm": None})
    eager = shape(compiled=False, sequence_parallelism=False)
    found = judge(case(untimed, sp=False, shape=eager))
    assert (found.verdict, [reason.finding for reason in found.reasons]) == (Verdict.PASS, [None])
    assert judge(case(untimed, sp=False)).verdict is Verdict.INVALID_MEASUREMENT


def test_the_clock_may_miss_two_per_cent() -> None:
    assert judge(case(put("compile.cold.ranks.0.unaccounted_s", -0.07))).verdict is Verdict.PASS
    assert judge(case(put("compile.cold.ranks.0.unaccounted_s", -0.08))).verdict is Verdict.INVALID_MEASUREMENT


def test_the_phases_that_compile_are_those_of_the_time_line() -> None:
    assert set(COMPILER_PHASES) == set(COMPILE_PHASES)


def test_no_sp_pass_is_missed_where_sp_is_off() -> None:
    assert judge(case(sp=False)).verdict is Verdict.PASS
    assert judge(case(put(SP, None), sp=True)).verdict is Verdict.NOT_EXERCISED


def test_an_audit_alone_asks_for_no_evidence() -> None:
    audited = case(checks=(Check.AUDIT,), evidence=None)
    assert judge(audited).verdict is Verdict.PASS
    assert judge(replace(audited, checks=(Check.AUDIT, Check.COMPILE))).verdict is Verdict.INVALID_MEASUREMENT


def change(written: bool, reason: str | None = "SP needs the whole graph", where: str | None = "vllm.py:8") -> Change:
    return Change(key="a.b", requested=["x"], effective=[], written=written, reason=reason, where=where)


def test_a_written_setting_that_changed_is_a_downgrade() -> None:
    found = judge(case(changes=[change(written=True)]))
    assert found.verdict is Verdict.DOWNGRADED
    expected = "a.b was asked to be ['x'] and runs as []: SP needs the whole graph [vllm.py:8]"
    assert [reason.text for reason in found.reasons] == [expected]
    assert "the engine gave no reason" in judge(case(changes=[change(True, None, None)])).reasons[0].text


def test_a_setting_nobody_wrote_may_change() -> None:
    found = judge(case(changes=[change(written=False)]))
    assert (found.verdict, found.reasons) == (Verdict.PASS, ())


def test_a_duplicate_names_the_cell_that_ran() -> None:
    found = judge(case(duplicate_of="tp=2"))
    assert (found.verdict, found.reasons[0].text) == (
        Verdict.DUPLICATE, "same effective settings as tp=2: run once, result shared",
    )  # fmt: skip


# --- what did not come through ---------------------------------------------------------------------------------------

FAILURE = Failure(phase="load_model", rank=1, message="RuntimeError: no", log_tail=["first", "Killed"])


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [("crashed", Verdict.CRASHED), ("timed-out", Verdict.TIMED_OUT), ("cancelled", Verdict.CANCELLED)],
)
@pytest.mark.parametrize("failure", [FAILURE, None], ids=["with words", "without a word"])
def test_an_arm_that_does_not_come_through(outcome: str, verdict: Verdict, failure: Failure | None) -> None:
    lost = arm(Role.PROBE, Outcome(outcome), failure).model_dump(mode="json")
    gone = (put("arms.2", lost), put("residual", []), put("outputs", []), put(SP, None))
    found = judge(case(*gone))
    assert found.verdict is verdict
    # What is missing follows from it and is no finding of its own.
    assert len(found.reasons) == 1
    assert judge(case(*gone[1:])).verdict is Verdict.INVALID_MEASUREMENT


def test_how_an_arm_ended_in_words() -> None:
    ended = how_it_ended(arm(Role.WARM, Outcome.CRASHED, FAILURE))
    assert ended == "warm arm, rank 1, phase load_model: RuntimeError: no. Last line of its log: Killed"
    stuck = Failure(
        phase="profile", rank=1, message="too long", log_tail=["x"], since_s=41.6, cause="autotuning", stacks="s.txt"
    )
    assert how_it_ended(arm(Role.COLD, Outcome.TIMED_OUT, stuck)) == (
        "cold arm, rank 1, phase profile for 42 s: too long. Likely cause: autotuning. Stacks: s.txt. "
        "Last line of its log: x"
    )
    silent = Failure(phase=None, rank=None, message="gone", log_tail=[])
    assert how_it_ended(arm(Role.COLD, Outcome.CRASHED, silent)) == "cold arm, main process, phase unknown: gone."
    assert how_it_ended(arm(Role.COLD, Outcome.CRASHED)) == "cold arm: crashed"


def test_a_lost_shared_arm_is_the_cells_crash_only_if_it_is_its_own_probe() -> None:
    lost = arm(Role.REPLICATED, Outcome.TIMED_OUT, FAILURE)
    own, other = shared_arm(lost, own=True), shared_arm(lost, own=False)
    assert (own.finding, other.finding) == (Verdict.TIMED_OUT, Verdict.INVALID_MEASUREMENT)
    assert other.text == f"nothing to compare with: {own.text}"
    found = judge(case(put("residual", []), lost=(other,)))
    assert (found.verdict, found.reasons) == (Verdict.INVALID_MEASUREMENT, (other,))


def test_a_lost_run_is_a_crash() -> None:
    found = judge(case(evidence=None, failure="the actor is gone"))
    assert (found.verdict, [reason.text for reason in found.reasons]) == (Verdict.CRASHED, ["the actor is gone"])


def test_a_run_without_evidence_is_no_measurement() -> None:
    assert judge(case(evidence=None)).verdict is Verdict.INVALID_MEASUREMENT
    lost = Reason(Verdict.TIMED_OUT, "its probe hung")
    assert judge(case(evidence=None, lost=(lost,))).reasons == (lost,)


# --- the gravest stands for all --------------------------------------------------------------------------------------


def test_gravity() -> None:
    assert tuple(sorted(Verdict, key=lambda verdict: verdict.gravity)) == GRAVITY
    assert Verdict.CRASHED.gravity == 0


@settings(deadline=None, max_examples=100)
@given(st.lists(st.sampled_from(Verdict) | st.none(), max_size=6))
def test_the_gravest_finding_is_the_verdict_and_all_stand_in_the_reasons(findings: list[Verdict | None]) -> None:
    reasons = tuple(Reason(finding, str(place)) for place, finding in enumerate(findings))
    found = judge(case(lost=reasons))
    named = [GRAVITY.index(finding) for finding in findings if finding is not None]
    assert found.verdict == (GRAVITY[min(named)] if named else "pass")
    assert set(found.reasons) == set(reasons)
    assert len(found.reasons) == len(reasons)
    order = [len(GRAVITY) if reason.finding is None else GRAVITY.index(reason.finding) for reason in found.reasons]
    assert order == sorted(order)


def test_findings_of_several_rules_stand_side_by_side() -> None:
    edits = [DEFECTS[name][0] for name in ("a guard gone", "no warm start", "a divergence", "no graph", "garbage")]
    found = judge(case(*edits, changes=[change(written=True)], duplicate_of="other"))
    assert [reason.finding for reason in found.reasons] == [
        Verdict.FAIL_RESIDUAL, Verdict.FAIL_OUTPUT, Verdict.FAIL_GUARD, Verdict.INVALID_MEASUREMENT,
        Verdict.NOT_EXERCISED, Verdict.DOWNGRADED, Verdict.DUPLICATE,
    ]  # fmt: skip


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(Verdict), st.lists(st.sampled_from(Verdict), max_size=4))
def test_a_cell_is_ok_if_and_only_if_its_verdict_is_one_it_expects(verdict: Verdict, expect: list[Verdict]) -> None:
    found = judge(case(lost=(Reason(verdict, "so it was"),), expect=tuple(expect)))
    assert found.ok is (found.verdict in expect)


# --- nothing recorded is never a pass --------------------------------------------------------------------------------

NOTHING = residual(Role.PROBE, Role.REPLICATED) | {
    "sites": 0, "steps": 0, "ranks": 0, "tokens": 0, "elements": 0, "bitwise_equal": None, "worst_score": None,
}  # fmt: skip


@pytest.mark.parametrize("missing", [[], ["rank 0 recorded no residual"]], ids=["unnoticed", "noticed"])
@pytest.mark.parametrize("checks", [CHECKS, (Check.RESIDUAL,)], ids=["all checks", "residual alone"])
def test_a_run_in_which_no_residual_was_recorded(missing: list[str], checks: tuple[Check, ...]) -> None:
    assert judge(case(checks=checks)).verdict is Verdict.PASS
    found = judge(case(put("residual.0", NOTHING | {"missing": missing}), checks=checks))
    assert found.verdict is Verdict.INVALID_MEASUREMENT


# --- judged again by another policy ----------------------------------------------------------------------------------


def records(*scores: float | None) -> list[dict[str, Any]]:
    return [
        DIVERGENCE | {"score": score, "step": step, "sentence": f"step {step}"} for step, score in enumerate(scores)
    ]


def scored(found: list[dict[str, Any]], first: dict[str, Any] | None = None) -> Edit:
    worst = max(1e30 if record["score"] is None else record["score"] for record in found)
    return put("residual.1", residual(Role.REPLICATED, Role.REFERENCE)
               | {"records": found, "worst_score": worst, "first_divergence": first})  # fmt: skip


@pytest.mark.parametrize(
    ("factor", "step"), [(3.0, None), (2.5, None), (2.4, 2), (1.0, 1), (0.9, 1), (0.4, 0), (100.0, None)]
)
def test_the_same_evidence_by_another_noise_factor(factor: float, step: int | None) -> None:
    judged = case(scored(records(0.5, 1.5, 2.5)))
    assert judge(judged).verdict is Verdict.PASS
    found = judge_again(judged, Policy(noise_factor=factor))
    assert found.verdict is (Verdict.PASS if step is None else Verdict.INVALID_MEASUREMENT)
    assert step is None or f"step {step} (the arm" in found.reasons[0].text


def test_what_failed_may_pass_by_a_looser_policy() -> None:
    found = records(0.5, 7.0)
    judged = case(scored(found, found[1]))
    assert judge(judged).verdict is Verdict.INVALID_MEASUREMENT
    assert judge_again(judged, Policy(noise_factor=8.0)).verdict is Verdict.PASS


def test_no_policy_lets_pass_what_is_no_number_or_owes_its_bits() -> None:
    endless = Policy(noise_factor=1e29)
    broken = records(0.5, None)
    assert judge_again(case(scored(broken, broken[1])), endless).verdict is Verdict.INVALID_MEASUREMENT
    bits = records(0.1)
    owed = residual(Role.PROBE, Role.REPLICATED) | {"records": bits, "first_divergence": bits[0]}
    assert judge_again(case(put("residual.0", owed)), endless).verdict is Verdict.FAIL_RESIDUAL
    copies = records(0.1)
    differ = scored(copies, copies[0] | {"pattern": "replicas-differ"})
    assert judge_again(case(differ), endless).verdict is Verdict.INVALID_MEASUREMENT


def test_without_evidence_no_policy_helps() -> None:
    assert judge_again(case(evidence=None), Policy()).verdict is Verdict.INVALID_MEASUREMENT


# --- layouts, sketches, stages ---------------------------------------------------------------------------------------


def test_steps_below_the_threshold_are_counted_apart() -> None:
    """Of 29 tokens 5 were in steps in which each of two ranks holds all."""
    counted = residual(Role.PROBE, Role.REPLICATED) | {
        "scattered_rows": 24 * SITES, "replicated_rows": 5 * SITES, "replicas_equal": True,
        "elements": (24 + 2 * 5) * SITES * HIDDEN,
    }  # fmt: skip
    assert judge(case(put("residual.0", counted))).verdict is Verdict.PASS
    as_before = counted | {"elements": TOKENS * SITES * HIDDEN}
    assert judge(case(put("residual.0", as_before))).verdict is Verdict.INVALID_MEASUREMENT
    not_copies = counted | {"replicas_equal": None}
    assert judge(case(put("residual.0", not_copies))).verdict is Verdict.INVALID_MEASUREMENT


def test_of_a_sketch_its_own_numbers_are_counted() -> None:
    wide = shape(hidden_size=4096)
    sketched = {"sketched": True}
    every = [residual(Role.PROBE, Role.REPLICATED), residual(Role.REPLICATED, Role.REFERENCE), again()]
    edit = put("residual", [item | sketched for item in every])
    assert HIDDEN == 64
    assert judge(case(edit, shape=wide)).verdict is Verdict.PASS
    assert judge(case(shape=wide)).verdict is Verdict.INVALID_MEASUREMENT


def test_stages_of_a_pipeline_have_their_own_numbers_to_rewrite() -> None:
    stages = shape(pipeline_parallel_size=2)
    ranks = put(SP, {"expected": 3, "matched": 3, "per_rank": [3, 3, 2, 2], "expected_per_rank": [3, 3, 2, 2]})
    short = put(SP, {"expected": 3, "matched": 2, "per_rank": [3, 2, 2, 2], "expected_per_rank": [3, 3, 2, 2]})
    checks = (Check.RESIDUAL,)
    assert judge(case(ranks, checks=checks, shape=stages)).verdict is Verdict.PASS
    found = judge(case(short, checks=checks, shape=stages))
    assert found.verdict is Verdict.NOT_EXERCISED
    assert found.reasons[0].text == "the SP pass rewrote [3, 2, 2, 2] of [3, 3, 2, 2] all-reduces per rank"
    unseen = put("invariants.9", invariant("boundary", None))
    assert judge(case(ranks, unseen, checks=checks, shape=stages)).verdict is Verdict.INVALID_MEASUREMENT
    assert judge(case(unseen, checks=checks)).verdict is Verdict.PASS


def test_a_pass_that_rewrote_too_little_is_not_exercised_and_no_fault_of_the_residual() -> None:
    broken = put("invariants.8", invariant("collectives", False))
    short = put(SP, {"expected": 5, "matched": 4, "per_rank": [4, 4]})
    assert judge(case(broken, short)).verdict is Verdict.NOT_EXERCISED
    assert judge(case(broken)).verdict is Verdict.FAIL_RESIDUAL


def test_a_graph_that_was_not_rewritten_has_no_parts_to_check() -> None:
    nothing = put(SP, {"expected": 5, "matched": 0, "per_rank": [0, 0]})
    unseen = put("invariants.0", invariant("shards-complete", None))
    found = judge(case(nothing, unseen))
    assert [reason.finding for reason in found.reasons] == [Verdict.NOT_EXERCISED]


def test_a_probe_that_is_shared_was_run_twice_and_a_cells_own_was_not() -> None:
    found = evidence(sp=False)
    found["arms"] = [item for item in found["arms"] if item["role"] != Role.PROBE]
    alone = case(sp=False, evidence=Evidence.model_validate(found))
    assert judge(alone).verdict is Verdict.INVALID_MEASUREMENT
    found["residual"].append(again())
    found["outputs"].append(output(Role.REPLICATED, Role.REPLICATED))
    assert judge(case(sp=False, evidence=Evidence.model_validate(found))).verdict is Verdict.PASS
    assert judge(case(sp=False)).verdict is Verdict.PASS


def test_a_sentence_stands_in_the_reason() -> None:
    told = DIVERGENCE | {"sentence": "site 1.attn, step 3: rank 1 holds the part of rank 0"}
    found = judge(case(put("residual.0.first_divergence", told)))
    text = "residual of the probe arm against the replicated arm: site 1.attn, step 3: rank 1 holds the part of rank 0"
    assert found.reasons[0].text == text
    assert RANKS == 2
