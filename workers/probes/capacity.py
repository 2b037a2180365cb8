"""How much a recording takes, and whether it is kept whole or as sketches.

Decided from the batch plan and the model alone, the same for every arm that runs the plan: two recordings are
compared only where both are of one kind.
"""

from __future__ import annotations

import json
from dataclasses import asdict

from workers.probes.slots import Capacity
from workers.protocol import BatchPlan
from workers.residual.sketch import BYTES_PER_TOKEN

LARGEST_ELEMENT = 4
"""Bytes of a number in float32, which the reference runs in. Other arms' formats are no wider."""

PADDING = 512
"""Batches are padded to a multiple of the ranks, and to the size of a captured CUDA graph: no further than this."""

STEP_PADDING = 16
"""The same on average over the steps: vLLM's own captured sizes lie no further apart."""


def steps_tokens(plan: BatchPlan) -> int:
    """Tokens of all steps of ``plan`` together."""
    requests = [length for wave in (*plan.waves, *plan.staggered) for length in wave]
    once = sum(requests) + len(requests) * (plan.max_tokens - 1)
    return once * (2 if plan.prefix_caching else 1)


def most_steps(plan: BatchPlan, max_num_batched_tokens: int) -> int:
    """``plan`` is done in so many steps: each gives some request its next token, or is full of prompts."""
    requests = sum(len(wave) for wave in (*plan.waves, *plan.staggered)) * (2 if plan.prefix_caching else 1)
    return requests * plan.max_tokens + steps_tokens(plan) // max_num_batched_tokens


def largest_step(plan: BatchPlan, max_num_batched_tokens: int) -> int:
    """No step of ``plan`` has more tokens."""
    most = max((sum(wave) for wave in (*plan.waves, *plan.staggered)), default=1)
    return max(1, min(most, max_num_batched_tokens))


def capacity(plans: list[BatchPlan], max_num_batched_tokens: int, sites: int, hidden_size: int) -> Capacity:
    """What an arm that runs ``plans`` one after the other needs. Each is written out before the next begins."""
    rows = max(largest_step(plan, max_num_batched_tokens) for plan in plans) + PADDING
    padding = STEP_PADDING * max(most_steps(plan, max_num_batched_tokens) for plan in plans)
    most = max(steps_tokens(plan) for plan in plans) + padding + rows
    whole = most * sites * hidden_size * LARGEST_ELEMENT <= min(plan.full_bytes for plan in plans)
    return Capacity(rows, whole)


def bytes_per_token(kept_whole: bool, hidden_size: int, element_size: int) -> int:
    """Memory of one token at one site."""
    return hidden_size * element_size if kept_whole else BYTES_PER_TOKEN


def to_text(capacity: Capacity) -> str:
    """For an environment variable: every process of an arm is told the same."""
    return json.dumps(asdict(capacity))


def from_text(text: str) -> Capacity:
    return Capacity(**json.loads(text))
