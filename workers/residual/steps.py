"""Which steps of two arms had the same input.

A decode step is fed the token that the arm chose itself. Once two arms choose differently in a tie, what they compute
afterwards for that request cannot be held against each other; nor can what other requests do in the same steps, since
a step is compared as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from workers.residual.taps import Step

Answer = dict[str, Any]
"""``prompt`` and ``tokens`` of one request, see ``workers.engine.drive``."""


def same_input(steps: Sequence[Step], one: Sequence[Answer], other: Sequence[Answer]) -> frozenset[int]:
    """Numbers of the steps in which two arms were given the same tokens.

    Args:
        steps: what was in them, as recorded; for two recordings see ``alike``. A step that does not say which requests
            it held is left out: nobody knows what it was given.
        one, other: the answers of each arm, by number of the request. Prompts of embeddings are drawn from one seed
            and have no token ids: their positions count as equal.
    """
    return frozenset(
        number
        for number, step in enumerate(steps)
        if step.requests and all(_same_tokens(request, one, other) for request in step.requests)
    )


def alike(one: Sequence[Step], other: Sequence[Step]) -> list[Step]:
    """The steps of both arms; where they did not hold the same requests in the same order, without any."""
    return [
        mine if mine.requests == theirs.requests else replace(mine, requests=())
        for mine, theirs in zip(one, other, strict=False)
    ]


def _same_tokens(request: tuple[int, int, int], one: Sequence[Answer], other: Sequence[Answer]) -> bool:
    """Attention sees all that came before, so it is not enough that the tokens of this step are equal."""
    number, first, count = request
    if number >= min(len(one), len(other)):
        return False
    fed, expected = (_fed(answers[number], first + count) for answers in (one, other))
    return len(fed) == first + count and fed == expected


def _fed(answer: Answer, count: int) -> list[Any]:
    return [*answer["prompt"], *answer["tokens"]][:count]
