"""What tasks scored becomes findings: each beside the healthy case that has none."""

from __future__ import annotations

from typing import Any

import pytest

from service.domain.case import Case
from service.domain.judge import judge
from service.domain.verdict import Verdict
from workers.protocol import Check, Role

from .healthy import arm, case, put

EVAL = (Check.AUDIT, Check.EVAL)


def score(**fields: Any) -> dict[str, Any]:
    healthy = {
        "task": "sums", "metric": "acc", "filter": "none", "samples": 64, "num_fewshot": 0,
        "value": 0.5, "stderr": 0.06, "control_value": 0.5, "control_stderr": 0.06,
        "difference": 0.0, "difference_stderr": 0.0, "paired": True, "changed": 0,
    }  # fmt: skip
    return healthy | fields


def found(*scores: dict[str, Any], **fields: Any) -> dict[str, Any]:
    healthy = {
        "subject": Role.EVAL, "against": Role.EVAL_REPLICATED, "tasks": list(scores or [score()]), "not_finite": 0,
        "control_not_finite": 0, "truncated": 0, "missing": [], "limit": None, "seed": 1, "resamples": 1000,
        "lm_eval": "0.4.13",
    }  # fmt: skip
    return healthy | fields


def evaluated(accuracy: dict[str, Any] | None, sp: bool = True, **fields: Any) -> Case:
    arms = [arm(Role.EVAL).model_dump(mode="json")]
    return case(put("arms", arms), put("residual", []), put("accuracy", accuracy), checks=EVAL, sp=sp, **fields)


def alone(**fields: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("control_value", "control_stderr", "difference", "difference_stderr", "changed"))
    return found(score(**empty, paired=False), against=None, control_not_finite=None, **fields)


@pytest.mark.parametrize(("accuracy", "sp"), [(found(), True), (alone(), False)], ids=["SP on", "SP off"])
def test_equal_scores_pass_without_a_word(accuracy: dict[str, Any], sp: bool) -> None:
    judged = judge(evaluated(accuracy, sp))
    assert (judged.verdict, judged.reasons) == (Verdict.PASS, ())


DEFECTS: dict[str, tuple[dict[str, Any] | None, str, str]] = {
    "beyond chance": (found(score(value=0.2, difference=-0.3, difference_stderr=0.099, changed=21)), "fail-output",
                      "acc of sums is 0.2 where the eval-replicated arm has 0.5: 3 standard errors"),
    "all changed alike": (found(score(value=0.0, difference=-0.5, difference_stderr=0.0, changed=64)), "fail-output",
                          "without any spread"),
    "better than it was": (found(score(value=0.9, difference=0.4, difference_stderr=0.1, changed=30)), "fail-output",
                           "4 standard errors of that difference, 30 of 64 samples changed"),
    "no finite number": (found(not_finite=2), "fail-output", "2 log-probabilities are no finite number"),
    "control without numbers": (found(control_not_finite=1), "invalid-measurement", "of the eval-replicated arm"),
    "nothing evaluated": (None, "invalid-measurement", "no task was evaluated"),
    "no task": (found() | {"tasks": []}, "invalid-measurement", "no task was evaluated"),
    "no control": (alone(), "invalid-measurement", "not compared with that of SP off"),
    "a gap": (found(missing=["acc of x"]), "invalid-measurement", "not compared in full: acc of x"),
    "no samples": (found(score(samples=0)), "invalid-measurement", "no number from 0 samples"),
    "no value": (found(score(value=None)), "invalid-measurement", "no number from 64 samples"),
    "no difference": (found(score(difference=None)), "invalid-measurement", "not compared with the eval-replicated"),
    "nothing to weigh it by": (found(score(difference=0.1, difference_stderr=None, changed=None, paired=False)),
                               "invalid-measurement", "no standard error to weigh that by"),
}  # fmt: skip


@pytest.mark.parametrize("name", DEFECTS)
def test_one_defect_one_verdict(name: str) -> None:
    accuracy, verdict, said = DEFECTS[name]
    judged = judge(evaluated(accuracy))
    assert judged.verdict == verdict
    assert any(said in reason.text for reason in judged.reasons), judged.reasons


def test_a_difference_within_chance_is_a_note() -> None:
    judged = judge(evaluated(found(score(value=0.4, difference=-0.1, difference_stderr=0.05, changed=8))))
    assert judged.verdict is Verdict.PASS
    assert [reason.finding for reason in judged.reasons] == [None]
    assert "2 standard errors of that difference, 8 of 64 samples changed" in judged.reasons[0].text


def test_samples_that_changed_both_ways_are_a_note() -> None:
    judged = judge(evaluated(found(score(difference=0.0, difference_stderr=0.02, changed=4))))
    assert judged.verdict is Verdict.PASS
    assert "4 of 64 samples changed" in judged.reasons[0].text


def test_requests_that_were_cut_are_a_note() -> None:
    judged = judge(evaluated(found(truncated=3)))
    assert judged.verdict is Verdict.PASS
    assert "3 requests were longer" in judged.reasons[0].text


def test_the_policy_says_how_many_standard_errors() -> None:
    accuracy = found(score(value=0.3, difference=-0.2, difference_stderr=0.1, changed=20))
    assert judge(evaluated(accuracy)).verdict is Verdict.PASS
    strict = case(put("arms", []), put("policy", {"accuracy_factor": 1.0}), put("accuracy", accuracy), checks=EVAL)
    assert judge(strict).verdict is Verdict.FAIL_OUTPUT


def test_who_did_not_ask_is_told_nothing() -> None:
    broken = found(score(value=0.0, difference=-0.5))
    assert judge(case(put("accuracy", broken))).verdict is Verdict.PASS


def test_what_a_dead_arm_leaves_out_needs_no_finding_of_its_own() -> None:
    lost = case(
        put("arms", [arm(Role.EVAL).model_dump(mode="json") | {"outcome": "crashed"}]), put("residual", []), checks=EVAL
    )
    judged = judge(lost)
    assert [reason.finding for reason in judged.reasons] == [Verdict.CRASHED]
