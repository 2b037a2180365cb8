"""The rule by which what tasks scored becomes findings."""

from __future__ import annotations

import math
from collections.abc import Iterator

from service.domain.case import Case, Reason
from service.domain.verdict import Verdict
from workers.protocol import Accuracy, Check, TaskScore


def accuracy(case: Case) -> Iterator[Reason]:
    """SP changes what tasks score by more than chance does, or that was not compared."""
    if Check.EVAL not in case.checks or case.evidence is None:
        return
    found = case.evidence.accuracy
    if found is None or not found.tasks:
        if not case.broken:
            yield Reason(Verdict.INVALID_MEASUREMENT, "no task was evaluated")
        return
    yield from _numbers(found)
    for gap in found.missing:
        yield Reason(Verdict.INVALID_MEASUREMENT, f"accuracy: not compared in full: {gap}")
    if found.truncated:
        yield Reason(None, f"accuracy: {found.truncated} requests were longer than the model takes and were cut")
    if case.shape.sequence_parallelism and found.against is None and not case.broken:
        yield Reason(Verdict.INVALID_MEASUREMENT, "the accuracy was not compared with that of SP off")
    for score in found.tasks:
        yield from _score(score, found, case.evidence.policy.accuracy_factor)


def _numbers(found: Accuracy) -> Iterator[Reason]:
    if found.not_finite:
        text = f"accuracy: {found.not_finite} log-probabilities are no finite number"
        yield Reason(Verdict.FAIL_OUTPUT, text)
    if found.control_not_finite:
        text = f"accuracy: {found.control_not_finite} log-probabilities of the {found.against} arm are no finite number"
        yield Reason(Verdict.INVALID_MEASUREMENT, text)


def _score(score: TaskScore, found: Accuracy, factor: float) -> Iterator[Reason]:
    name = f"accuracy: {score.metric} of {score.task}" + ("" if score.filter == "none" else f" ({score.filter})")
    if not score.samples or score.value is None:
        yield Reason(Verdict.INVALID_MEASUREMENT, f"{name}: no number from {score.samples} samples")
        return
    if found.against is None:
        return
    if score.difference is None or score.control_value is None:
        yield Reason(Verdict.INVALID_MEASUREMENT, f"{name}: not compared with the {found.against} arm")
        return
    if score.difference == 0 and not score.changed:
        return
    text = f"{name} is {score.value:.4g} where the {found.against} arm has {score.control_value:.4g}"
    if score.difference_stderr is None:
        yield Reason(Verdict.INVALID_MEASUREMENT, f"{text}, and lm_eval has no standard error to weigh that by")
        return
    size = abs(score.difference) / score.difference_stderr if score.difference_stderr else _unbounded(score.difference)
    beyond = not size <= factor
    pairs = f", {score.changed} of {score.samples} samples changed" if score.changed is not None else ""
    # Every sample changed by the same amount: there is no spread, and no chance in it.
    spread = "without any spread" if math.isinf(size) else f"{size:.2g} standard errors of that difference"
    yield Reason(Verdict.FAIL_OUTPUT if beyond else None, f"{text}: {spread}{pairs}")


def _unbounded(difference: float) -> float:
    return math.inf if difference else 0.0
