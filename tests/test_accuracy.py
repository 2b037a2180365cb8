"""Two arms' scores side by side: the arithmetic, and what cannot be compared."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.accuracy import accuracy, compare, mean_stderr
from workers.protocol import Role, TaskScore

Scores = list[float]


def item(known: Scores, **fields: Any) -> dict[str, Any]:
    plain = {
        "task": "sums", "metric": "acc", "filter": "none", "num_fewshot": 0, "samples": len(known), "inputs": "same",
        "value": math.fsum(known) / len(known), "stderr": mean_stderr(known), "scores": known,
    }  # fmt: skip
    return plain | fields


def arm(*items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    plain = {"lm_eval": "0.4.13", "limit": None, "seed": 1, "resamples": 1000, "not_finite": 0, "truncated": 0}
    return plain | {"tasks": list(items)} | fields


def score(own: dict[str, Any], control: dict[str, Any]) -> TaskScore:
    (found,) = compare(arm(own), arm(control)).tasks
    return found


def test_the_same_scores_differ_by_nothing_with_no_error() -> None:
    found = score(item([1, 0, 1, 1]), item([1, 0, 1, 1]))
    assert (found.difference, found.difference_stderr, found.changed, found.paired) == (0, 0, 0, True)
    assert (found.value, found.control_value, found.samples) == (0.75, 0.75, 4)


def test_pairs_are_told_from_independent_samples() -> None:
    """Two samples of a hundred change: next to nothing, though the arms' own errors are large."""
    own = [float(n % 2) for n in range(100)]
    found = score(item(own), item([1.0, own[1], 1.0, *own[3:]]))
    assert found.changed == 2
    assert found.difference == pytest.approx(-0.02)
    assert found.difference_stderr == pytest.approx(math.sqrt(2 * 0.98 / 99 / 100), rel=0.02)
    unpaired = score(item(own, scores=None), item(own, scores=None))
    assert unpaired.paired is False
    assert unpaired.difference_stderr == pytest.approx(math.hypot(mean_stderr(own) or 0, mean_stderr(own) or 0))


def test_other_samples_are_not_compared() -> None:
    found = compare(arm(item([1, 0])), arm(item([0, 1], inputs="other")))
    assert found.missing == ["acc of sums (filter none): the two arms were given different samples"]
    assert found.tasks[0].difference is None


def test_a_metric_of_one_arm_is_missing_in_the_other() -> None:
    found = compare(arm(item([1, 0])), arm(item([1, 0]), item([1, 0], metric="acc_norm")))
    assert found.missing == ["acc_norm of sums (filter none) was scored in one arm only"]


def test_a_value_that_is_no_number_is_none() -> None:
    found = score(item([1, 0], value=math.nan, scores=None), item([1, 0]))
    assert (found.value, found.difference, found.control_value) == (None, None, 0.5)


def test_without_a_standard_error_the_difference_has_none() -> None:
    found = score(item([0], value=0.5, stderr=None, scores=None), item([0], value=0.25, stderr=0.1))
    assert (found.difference, found.difference_stderr) == (0.25, None)


def test_what_happened_in_each_arm_is_kept() -> None:
    found = compare(arm(item([1, 0]), not_finite=3, truncated=2), arm(item([1, 0]), not_finite=1))
    assert (found.not_finite, found.control_not_finite, found.truncated) == (3, 1, 2)


def test_which_arm_stands_against_which() -> None:
    own, shared = {"accuracy": arm(item([1, 1]))}, {"accuracy": arm(item([1, 0]))}
    both = accuracy({Role.EVAL: own, Role.EVAL_REPLICATED: shared})
    assert both is not None
    assert (both.against, both.tasks[0].value, both.tasks[0].control_value) == (Role.EVAL_REPLICATED, 1.0, 0.5)
    alone = accuracy({Role.EVAL_REPLICATED: shared})
    assert alone is not None
    assert (alone.against, alone.tasks[0].value, alone.tasks[0].difference) == (None, 0.5, None)
    assert accuracy({Role.PROBE: {"outputs": []}}) is None


numbers = st.lists(st.floats(-10, 10), min_size=2, max_size=40)


@settings(deadline=None, max_examples=100)
@given(numbers)
def test_the_standard_error_of_a_mean(values: Scores) -> None:
    assert mean_stderr(values) == pytest.approx(statistics.stdev(values) / math.sqrt(len(values)), abs=1e-9)
    assert mean_stderr(values[:1]) is None


@settings(deadline=None, max_examples=100)
@given(numbers, st.randoms(use_true_random=False))
def test_swapping_the_arms_turns_the_sign_alone(values: Scores, random: Any) -> None:
    other = random.sample(values, len(values))
    one, two = score(item(values), item(other)), score(item(other), item(values))
    assert one.difference == pytest.approx(-(two.difference or 0.0), abs=1e-12)
    assert one.difference_stderr == pytest.approx(two.difference_stderr, abs=1e-12)
    assert one.changed == two.changed
