"""How much a recording takes: decided before it is made, and never more than was decided."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.probes.capacity import (
    LARGEST_ELEMENT,
    PADDING,
    bytes_per_token,
    capacity,
    from_text,
    largest_step,
    steps_tokens,
    to_text,
)
from workers.probes.recorder import Recorder
from workers.probes.slots import Capacity
from workers.protocol import BatchPlan

SITES, HIDDEN = 2, 8
CAPTURED = [1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)]
"""Sizes for which vLLM captures CUDA graphs when not told otherwise."""

waves = st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=3), max_size=2)
plans = st.builds(
    BatchPlan,
    waves=waves,
    staggered=waves,
    max_tokens=st.integers(1, 12) | st.integers(100, 200),
    prefix_caching=st.booleans(),
    full_bytes=st.sampled_from([0, 1 << 12, 1 << 16, 1 << 20, 1 << 30]),
).filter(lambda plan: plan.waves or plan.staggered)
budgets = st.integers(4, 40)


# --- the steps of a plan ---------------------------------------------------------------------------------------------


def scheduled(plan: BatchPlan, budget: int) -> Iterator[int]:
    """Tokens of each step, scheduled as vLLM does: running requests first, prompts cut, nothing cached."""
    for number, wave in enumerate((*plan.waves, *plan.staggered)):
        for _ in range(2 if plan.prefix_caching else 1):
            yield from _wave(wave, plan.max_tokens, budget, one_by_one=number >= len(plan.waves))


def _wave(wave: list[int], max_tokens: int, budget: int, one_by_one: bool) -> Iterator[int]:
    waiting = list(wave)
    running: list[list[int]] = []
    while waiting or running:
        while waiting:
            running.append([waiting.pop(0), max_tokens])
            if one_by_one:
                break
        room = budget
        for request in running:
            taken = min(request[0], room)
            room -= taken
            request[0] -= taken
            if taken and not request[0]:
                # The last token of the prompt, or the one before, gave the next one.
                request[1] -= 1
                request[0] = 1
        running = [request for request in running if request[1]]
        yield budget - room


@settings(max_examples=100, deadline=None)
@given(plan=plans, budget=budgets)
def test_the_tokens_of_a_plan_are_those_of_its_steps(plan: BatchPlan, budget: int) -> None:
    steps = list(scheduled(plan, budget))
    assert sum(steps) == steps_tokens(plan)
    assert max(steps) <= largest_step(plan, budget)


def test_the_largest_step_is_a_wave_or_the_budget() -> None:
    plan = BatchPlan(waves=[[1], [20, 30]], staggered=[[7]])
    assert (largest_step(plan, 512), largest_step(plan, 32)) == (50, 32)
    assert largest_step(BatchPlan(waves=[]), 32) == 1


# --- the decision ----------------------------------------------------------------------------------------------------


def decided(plan: BatchPlan, *others: BatchPlan, budget: int = 64) -> Capacity:
    return capacity([plan, *others], budget, SITES, HIDDEN)


@settings(max_examples=50, deadline=None)
@given(plan=plans, budget=budgets, trials=st.integers(0, 3), element=st.sampled_from([2, 4]))
def test_every_arm_of_a_plan_decides_alike(plan: BatchPlan, budget: int, trials: int, element: int) -> None:
    """Arms differ in trials that run the same plan, in dtype and in ranks; the last two are not even asked for."""
    alone = decided(plan, budget=budget)
    assert decided(plan, *[plan] * trials, budget=budget) == alone
    assert element <= LARGEST_ELEMENT, "what an arm keeps of a token is no more than was reckoned with"
    assert from_text(to_text(alone)) == alone, "and each of its processes is told so"


@settings(max_examples=50, deadline=None)
@given(plan=plans, budget=budgets)
def test_residuals_are_kept_whole_exactly_while_the_worst_case_fits(plan: BatchPlan, budget: int) -> None:
    def whole(full_bytes: int) -> bool:
        return decided(plan.model_copy(update={"full_bytes": full_bytes}), budget=budget).whole

    low, high = 0, 1 << 40
    assert (whole(low), whole(high)) == (False, True)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if whole(middle) else (middle, high)
    # The least that suffices is one token more or less at a time, and has room for every step and for the buffers.
    assert high % (SITES * HIDDEN * LARGEST_ELEMENT) == 0
    buffers = decided(plan, budget=budget).rows
    assert high // (SITES * HIDDEN * LARGEST_ELEMENT) >= steps_tokens(plan) + buffers


@settings(max_examples=50, deadline=None)
@given(one=plans, two=plans, budget=budgets)
def test_several_plans_need_what_the_worst_of_them_does(one: BatchPlan, two: BatchPlan, budget: int) -> None:
    both, alone = decided(one, two, budget=budget), [decided(plan, budget=budget) for plan in (one, two)]
    assert both == decided(two, one, budget=budget)
    assert both.rows == max(found.rows for found in alone) >= largest_step(one, budget) + PADDING
    assert both.whole <= min(found.whole for found in alone)


# --- what is really recorded -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """How an arm runs: ``scattered`` rows are a part of the padded ones."""

    ranks: int
    scattered: bool
    captured: bool

    def padded(self, tokens: int) -> int:
        tokens = -(-tokens // self.ranks) * self.ranks
        return min(size for size in CAPTURED if size >= tokens) if self.captured else tokens


layouts = st.builds(Layout, st.sampled_from([1, 2, 4, 8]), st.booleans(), st.booleans())


def recorded(plan: BatchPlan, budget: int, layout: Layout, dtype: torch.dtype, room: Capacity) -> dict[str, Any]:
    """What a rank says of its recording of ``plan``."""
    record = Recorder(room)
    record.enabled = True
    for tokens in scheduled(plan, budget):
        padded = layout.padded(tokens)
        record.begin(tokens)
        record.forward(padded)
        rows = torch.ones(padded // layout.ranks if layout.scattered else padded, HIDDEN, dtype=dtype)
        for site in range(SITES):
            record.record(rows, site, SITES, (1, 512), layout.scattered)
        record.end()
    with tempfile.TemporaryDirectory() as folder:
        record.save(Path(folder), 0)
        index: dict[str, Any] = json.loads((Path(folder) / "taps-rank0.json").read_text())
    return index


def overrun(decide: Callable[..., Capacity], plan: BatchPlan, budget: int, layout: Layout, dtype: torch.dtype) -> bool:
    """Whether a recording that ``decide`` keeps whole takes more than the plan allows, buffers included."""
    room = decide([plan], budget, SITES, HIDDEN)
    index = recorded(plan, budget, layout, dtype, Capacity(room.rows, True))
    taken = index["recorded_bytes"] + index["buffer_bytes"]
    # One byte less than it takes: it must not be kept whole.
    return decide([plan.model_copy(update={"full_bytes": taken - 1})], budget, SITES, HIDDEN).whole


@settings(max_examples=25, deadline=None)
@given(plan=plans, budget=budgets, layout=layouts, dtype=st.sampled_from([torch.float32, torch.bfloat16]))
def test_what_is_kept_whole_takes_no_more_than_the_plan_allows(
    plan: BatchPlan, budget: int, layout: Layout, dtype: torch.dtype
) -> None:
    assert not overrun(capacity, plan, budget, layout, dtype)


def test_many_short_steps_that_are_padded_take_no_more_than_the_plan_allows() -> None:
    """One token at a time, each padded to eight: the padding is most of it."""
    plan, layout = BatchPlan(waves=[[1]], max_tokens=200), Layout(8, False, False)
    assert not overrun(capacity, plan, 64, layout, torch.float32)

    def without_padding(plans: list[BatchPlan], *rest: int) -> Capacity:
        most = steps_tokens(plans[0]) + 1 + PADDING
        return Capacity(1 + PADDING, most * SITES * HIDDEN * LARGEST_ELEMENT <= plans[0].full_bytes)

    assert overrun(without_padding, plan, 64, layout, torch.float32), "one that forgets the padding is caught"


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    plan=plans.filter(lambda plan: plan.max_tokens <= 12),
    budget=budgets,
    layout=layouts,
    whole=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_buffers_and_files_have_the_promised_bytes_per_token(
    plan: BatchPlan, budget: int, layout: Layout, whole: bool, dtype: torch.dtype
) -> None:
    room = Capacity(decided(plan, budget=budget).rows, whole)
    index = recorded(plan, budget, layout, dtype, room)
    each = SITES * bytes_per_token(whole, HIDDEN, dtype.itemsize)
    assert index["buffer_bytes"] == room.rows * each
    ranks = layout.ranks if layout.scattered else 1
    rows = sum(layout.padded(tokens) // ranks for tokens in scheduled(plan, budget))
    assert index["recorded_bytes"] == rows * each


@pytest.mark.parametrize("whole", [True, False])
def test_the_decision_is_told_to_every_process(whole: bool) -> None:
    assert from_text(to_text(Capacity(7, whole))) == Capacity(7, whole)
