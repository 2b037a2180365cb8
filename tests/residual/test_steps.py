"""Which steps two arms were given the same tokens in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.protocol import BatchPlan
from workers.residual.steps import same_input

PLAN = BatchPlan(waves=[[1], [2, 3]], max_tokens=3)


def answers(*tokens: list[int]) -> list[dict[str, Any]]:
    return [{"tokens": found} for found in tokens]


RIGHT = answers([1, 2, 3], [4, 5, 6], [7, 8, 9])


@pytest.mark.parametrize(
    ("other", "steps"),
    [
        (RIGHT, {0, 1, 2, 3, 4, 5}),
        # The last token is fed to nobody.
        (answers([1, 2, 0], [4, 5, 0], [7, 8, 0]), {0, 1, 2, 3, 4, 5}),
        # The first token is fed to step 1 of its wave.
        (answers([0, 2, 3], [4, 5, 6], [7, 8, 9]), {0, 3, 4, 5}),
        (answers([1, 0, 3], [4, 5, 6], [0, 8, 9]), {0, 1, 3}),
    ],
)
def test_a_step_counts_while_all_requests_of_its_wave_agree(other: list[dict[str, Any]], steps: set[int]) -> None:
    assert same_input(PLAN, RIGHT, other) == steps


@given(st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=3), min_size=3, max_size=3))
def test_prefill_steps_always_count(tokens: list[list[int]]) -> None:
    assert {0, 3} <= same_input(PLAN, RIGHT, answers(*tokens))
