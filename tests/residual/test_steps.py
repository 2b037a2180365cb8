"""Which steps two arms were given the same tokens in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.residual.steps import alike, same_input
from workers.residual.taps import Step

PROMPTS: list[list[int | None]] = [[5], [6, 7]]


def step(*requests: tuple[int, int, int]) -> Step:
    tokens = sum(number for _, _, number in requests)
    return Step(tokens=tokens, padded=tokens, requests=requests)


STEPS = [
    step((0, 0, 1)),
    # The prefill of the second request in two parts, the first of them beside a decoding one.
    step((0, 1, 1), (1, 0, 1)),
    step((0, 2, 1), (1, 1, 1)),
    step((1, 2, 1)),
    step((1, 3, 1)),
]


def answers(*tokens: list[int], prompts: list[list[int | None]] | None = None) -> list[dict[str, Any]]:
    return [{"prompt": prompt, "tokens": found} for prompt, found in zip(prompts or PROMPTS, tokens, strict=True)]


RIGHT = answers([1, 2, 3], [4, 5, 6])


@pytest.mark.parametrize(
    ("other", "steps"),
    [
        (RIGHT, {0, 1, 2, 3, 4}),
        # The last token is fed to nobody.
        (answers([1, 2, 0], [4, 5, 0]), {0, 1, 2, 3, 4}),
        # The first token of request 0 is fed in step 1, and stands before all that it does later.
        (answers([0, 2, 3], [4, 5, 6]), {0, 3, 4}),
        (answers([1, 0, 3], [4, 5, 6]), {0, 1, 3, 4}),
        # The first token of request 1 is fed in step 3.
        (answers([1, 2, 3], [0, 5, 6]), {0, 1, 2}),
        (answers([1, 2, 3], [4, 0, 6]), {0, 1, 2, 3}),
        # Another prompt, equal up to its second token.
        (answers([1, 2, 3], [4, 5, 6], prompts=[[5], [6, 8]]), {0, 1}),
    ],
)
def test_a_step_counts_while_all_that_came_before_agrees(other: list[dict[str, Any]], steps: set[int]) -> None:
    assert same_input(STEPS, RIGHT, other) == steps
    assert same_input(STEPS, other, RIGHT) == steps


def test_a_step_that_does_not_say_what_it_held_is_not_compared() -> None:
    assert same_input([step(), *STEPS[1:]], RIGHT, RIGHT) == {1, 2, 3, 4}


def test_what_was_not_answered_by_both_is_not_compared() -> None:
    assert same_input(STEPS, RIGHT, RIGHT[:1]) == {0}
    # A position that neither arm has a token for cannot have been fed to it.
    assert same_input([step((0, 3, 2))], RIGHT, RIGHT) == frozenset()


def test_embeddings_are_equal_by_construction_and_tokens_still_count() -> None:
    prompts: list[list[int | None]] = [[None], [None, None]]
    mine, theirs = (answers([1, 2, 3], [first, 5, 6], prompts=prompts) for first in (4, 0))
    assert same_input(STEPS, mine, theirs) == {0, 1, 2}


def test_steps_of_two_arms_have_to_hold_the_same_rows_in_the_same_order() -> None:
    assert alike(STEPS, STEPS) == STEPS
    turned = [STEPS[0], step((1, 0, 1), (0, 1, 1)), *STEPS[2:4]]
    assert same_input(alike(STEPS, turned), RIGHT, RIGHT) == {0, 2, 3}
    assert same_input(alike(turned, STEPS), RIGHT, RIGHT) == {0, 2, 3}


@given(st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=3), min_size=2, max_size=2))
def test_prefill_steps_always_count(tokens: list[list[int]]) -> None:
    alone = [step((0, 0, 1)), step((1, 0, 1)), step((1, 1, 1))]
    assert same_input(alone, RIGHT, answers(*tokens)) == {0, 1, 2}
