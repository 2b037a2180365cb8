"""Which steps of two arms had the same input.

A decode step is fed the token that the arm chose itself. Once two arms choose differently in a tie, what they compute
afterwards cannot be held against each other, in that wave.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workers.protocol import BatchPlan

Answer = dict[str, Any]
"""``tokens`` of one request, see ``workers.engine.drive``."""


def same_input(plan: BatchPlan, one: Sequence[Answer], other: Sequence[Answer]) -> frozenset[int]:
    """Numbers of the steps in which both arms were given the same tokens.

    Every wave is one prefill step and ``max_tokens - 1`` decode steps, of all its requests together.
    """
    steps: list[int] = []
    request = 0
    for number, wave in enumerate(plan.waves):
        pairs = [(one[n]["tokens"], other[n]["tokens"]) for n in range(request, request + len(wave))]
        request += len(wave)
        fed = min((_shared(found, expected) for found, expected in pairs), default=0)
        first = number * plan.max_tokens
        steps += range(first, first + min(fed + 1, plan.max_tokens))
    return frozenset(steps)


def _shared(found: Sequence[int], expected: Sequence[int]) -> int:
    """How many tokens both have in common from the first on."""
    return next((n for n, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), len(found))
