"""Tokens and log-probabilities of two arms: identical, drift, flip, garbage, or not comparable."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.outputs import Answer, compare_outputs
from workers.protocol import OutputClass, OutputComparison, Policy, Role

POLICY = Policy(logprob_atol=1e-5, flip_margin=1e-3)
ROLES = (Role.PROBE, Role.REPLICATED)


def answer(prompt: list[int], tokens: list[int], lead: float = 1.0) -> Answer:
    """Each chosen token is ``lead`` ahead of the next best, which is the token's number plus 100."""
    tops = [{str(token): -0.5, str(token + 100): -0.5 - lead} for token in tokens]
    return {"prompt": prompt, "tokens": tokens, "logprobs": [-0.5] * len(tokens), "top": tops}


CONTROL = [answer([1], [5, 6, 7]), answer([2, 3], [8, 9])]


def against(control: list[Answer], change: Callable[[list[Answer]], Any] = lambda answers: None) -> OutputComparison:
    """``control``'s answers, changed, held against ``control``."""
    subject = copy.deepcopy(control)
    change(subject)
    return compare_outputs(subject, control, ROLES, POLICY)


def put(request: int, key: str, position: int, value: Any) -> Callable[[list[Answer]], None]:
    def change(answers: list[Answer]) -> None:
        answers[request][key][position] = value

    return change


def both(*changes: Callable[[list[Answer]], Any]) -> Callable[[list[Answer]], None]:
    def change(answers: list[Answer]) -> None:
        for one in changes:
            one(answers)

    return change


# --- the classes -----------------------------------------------------------------------------------------------------


def test_identical() -> None:
    found = against(CONTROL)
    assert (found.klass, found.problem, found.first_difference) == (OutputClass.IDENTICAL, None, None)
    assert (found.compared_tokens, found.worst_logprob_difference) == (5, 0.0)
    assert (found.subject, found.against) == ROLES


@pytest.mark.parametrize(("off", "klass"), [(0.9e-5, "identical"), (1.1e-5, "drift"), (-0.3, "drift"), (2.0, "drift")])
def test_log_probabilities_may_differ_in_the_sixth_digit(off: float, klass: str) -> None:
    found = against(CONTROL, put(1, "logprobs", 1, -0.5 + off))
    assert found.klass == klass
    assert found.worst_logprob_difference == pytest.approx(abs(off))
    assert found.first_difference is None


def test_a_flip_names_the_first_token_that_differs_and_its_margin() -> None:
    found = against(CONTROL, both(put(0, "tokens", 1, 106), put(0, "tokens", 2, 3)))
    assert found.klass is OutputClass.FLIP
    assert found.first_difference is not None
    assert found.first_difference.model_dump() == {
        "request": 0, "position": 1, "expected": 6, "found": 106, "margin": 1.0,
    }  # fmt: skip


def test_the_margin_is_unknown_when_the_other_arm_did_not_list_the_token() -> None:
    found = against(CONTROL, put(1, "tokens", 0, 77))
    assert found.first_difference is not None
    assert (found.first_difference.request, found.first_difference.margin) == (1, None)


@pytest.mark.parametrize(
    ("tokens", "other", "expected", "got"), [([5, 6], [5, 6, 7], 7, -1), ([5, 6, 7], [5, 6], -1, 7), ([], [5], 5, -1)]
)
def test_an_answer_that_ends_early_is_a_flip(tokens: list[int], other: list[int], expected: int, got: int) -> None:
    found = compare_outputs([answer([1], tokens)], [answer([1], other)], ROLES, POLICY)
    assert found.klass is OutputClass.FLIP
    assert found.first_difference is not None
    first = found.first_difference
    assert (first.position, first.expected, first.found) == (min(len(tokens), len(other)), expected, got)
    assert first.margin is None


def test_a_tie_does_not_hide_a_flip() -> None:
    close = [answer([1], [5, 6], lead=1e-4), answer([2], [8, 9], lead=0.4)]
    tie, flip = put(0, "tokens", 1, 106), put(1, "tokens", 0, 108)
    tied = against(close, tie)
    assert tied.klass is OutputClass.FLIP
    assert tied.first_difference is not None
    assert tied.first_difference.request == 0
    assert tied.first_difference.margin == pytest.approx(1e-4)
    both_differ = against(close, both(tie, flip))
    assert both_differ.first_difference is not None
    assert both_differ.first_difference.request == 1
    assert both_differ.first_difference.margin == pytest.approx(0.4)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("flip", [False, True], ids=["same tokens", "other tokens"])
def test_a_log_probability_that_is_no_number_is_garbage(value: float, flip: bool) -> None:
    changes = [put(1, "logprobs", 0, value), *([put(0, "tokens", 0, 99)] if flip else [])]
    found = against(CONTROL, both(*changes))
    assert found.klass is OutputClass.GARBAGE
    assert found.worst_logprob_difference is None or math.isfinite(found.worst_logprob_difference)


def test_numbers_after_a_flip_are_not_compared() -> None:
    # The arms are on different texts from there on.
    found = against(CONTROL, both(put(0, "tokens", 1, 106), put(0, "logprobs", 2, -9.0)))
    assert found.worst_logprob_difference == 0.0


# --- not comparable --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "control"),
    [
        ([], []),
        ([], CONTROL),
        (CONTROL, []),
        (CONTROL[:1], CONTROL),
        (CONTROL[::-1], CONTROL),
        ([answer([1, 1], [5, 6, 7]), CONTROL[1]], CONTROL),
    ],
    ids=["nothing", "no subject", "no control", "one short", "other order", "other prompt"],
)
def test_answers_to_other_requests_are_not_comparable(subject: list[Answer], control: list[Answer]) -> None:
    found = compare_outputs(subject, control, ROLES, POLICY)
    assert (found.klass, found.compared_tokens, found.worst_logprob_difference) == (None, 0, None)
    assert found.problem == f"{len(subject)} and {len(control)} answers, and not to the same requests"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nothing_is_compared_with_garbage(value: float) -> None:
    garbage = copy.deepcopy(CONTROL)
    garbage[0]["logprobs"][1] = value
    found = compare_outputs(CONTROL, garbage, ROLES, POLICY)
    assert (found.klass, found.problem) == (None, "a log-probability of the arm compared with is not a finite number")
    # Where both are garbage, that is what the subject is.
    assert compare_outputs(garbage, garbage, ROLES, POLICY).klass is OutputClass.GARBAGE


# --- any answers -----------------------------------------------------------------------------------------------------

ANSWERS = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=4).map(
    lambda requests: [answer([number], tokens) for number, tokens in enumerate(requests)]
)


@settings(deadline=None, max_examples=80)
@given(ANSWERS)
def test_equal_answers_are_identical(answers: list[Answer]) -> None:
    found = against(answers)
    assert found.klass is OutputClass.IDENTICAL
    assert found.compared_tokens == sum(len(item["tokens"]) for item in answers)


@settings(deadline=None, max_examples=120)
@given(ANSWERS, st.data())
def test_one_other_token_anywhere_is_a_flip_at_that_place(answers: list[Answer], data: st.DataObject) -> None:
    request = data.draw(st.integers(0, len(answers) - 1))
    position = data.draw(st.integers(0, len(answers[request]["tokens"]) - 1))
    found = against(answers, put(request, "tokens", position, 1000))
    assert found.klass is OutputClass.FLIP
    assert found.first_difference is not None
    assert (found.first_difference.request, found.first_difference.position) == (request, position)


@settings(deadline=None, max_examples=120)
@given(ANSWERS, st.data(), st.floats(1e-4, 5.0))
def test_one_other_number_anywhere_is_drift(answers: list[Answer], data: st.DataObject, off: float) -> None:
    request = data.draw(st.integers(0, len(answers) - 1))
    position = data.draw(st.integers(0, len(answers[request]["tokens"]) - 1))
    found = against(answers, put(request, "logprobs", position, -0.5 - off))
    assert found.klass is OutputClass.DRIFT
    assert found.worst_logprob_difference == pytest.approx(off)
