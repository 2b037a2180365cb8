"""Compare the tokens and log-probabilities of two arms that were given the same requests."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from workers.protocol import Difference, OutputClass, OutputComparison, Policy, Role

Answer = dict[str, Any]
"""``prompt``, ``tokens``, ``logprobs``, ``top`` of one request, see ``workers.engine.drive``."""


def compare_outputs(
    subject: list[Answer], control: list[Answer], roles: tuple[Role, Role], policy: Policy
) -> OutputComparison:
    """Classify ``subject``'s answers against ``control``'s.

    identical: same tokens, log-probabilities within ``policy.logprob_atol``; drift: same tokens, other numbers; flip:
    a token differs; garbage: a log-probability that is no finite number. No class when there is nothing to compare.
    Of several requests whose tokens differ, one that is no tie by ``policy.flip_margin`` is named first.
    """
    if not subject or [a["prompt"] for a in subject] != [a["prompt"] for a in control]:
        return _not_comparable(f"{len(subject)} and {len(control)} answers, and not to the same requests", roles)
    if _is_garbage(control) and not _is_garbage(subject):
        return _not_comparable("a log-probability of the arm compared with is not a finite number", roles)
    worst = _worst(subject, control)
    differences = list(_differences(subject, control))
    first = next((found for found in differences if not _is_tie(found, policy)), next(iter(differences), None))
    return OutputComparison(
        subject=roles[0],
        against=roles[1],
        klass=_classify(subject, first, worst, policy),
        compared_tokens=sum(len(answer["tokens"]) for answer in subject),
        worst_logprob_difference=worst if worst is not None and math.isfinite(worst) else None,
        first_difference=first,
    )


def _not_comparable(problem: str, roles: tuple[Role, Role]) -> OutputComparison:
    return OutputComparison(
        subject=roles[0],
        against=roles[1],
        klass=None,
        problem=problem,
        compared_tokens=0,
        worst_logprob_difference=None,
        first_difference=None,
    )


def _classify(subject: list[Answer], first: Difference | None, worst: float | None, policy: Policy) -> OutputClass:
    if _is_garbage(subject):
        return OutputClass.GARBAGE
    if first is not None:
        return OutputClass.FLIP
    if worst is not None and worst > policy.logprob_atol:
        return OutputClass.DRIFT
    return OutputClass.IDENTICAL


def _is_garbage(answers: list[Answer]) -> bool:
    return any(not math.isfinite(value) for answer in answers for value in answer["logprobs"])


def _is_tie(difference: Difference, policy: Policy) -> bool:
    return difference.margin is not None and abs(difference.margin) <= policy.flip_margin


def _worst(subject: list[Answer], control: list[Answer]) -> float | None:
    """Largest difference of log-probabilities while both arms are on the same tokens."""
    worst: float | None = None
    for found, expected in zip(subject, control, strict=True):
        for position, (token, other) in enumerate(zip(found["tokens"], expected["tokens"], strict=False)):
            if token != other:
                break
            difference = abs(found["logprobs"][position] - expected["logprobs"][position])
            worst = difference if worst is None else max(worst, difference)
    return worst


def _differences(subject: list[Answer], control: list[Answer]) -> Iterator[Difference]:
    """The first token that differs, of each request that has one."""
    for number, (found, expected) in enumerate(zip(subject, control, strict=True)):
        if found["tokens"] == expected["tokens"]:
            continue
        pairs = zip(found["tokens"], expected["tokens"], strict=False)
        shorter = min(len(found["tokens"]), len(expected["tokens"]))
        position = next((n for n, (a, b) in enumerate(pairs) if a != b), shorter)
        yield _difference(number, position, found, expected)


def _difference(number: int, position: int, found: Answer, expected: Answer) -> Difference:
    theirs = _at(expected["tokens"], position)
    ours = _at(found["tokens"], position)
    margin = None
    if position < len(expected["top"]):
        top = expected["top"][position]
        if str(ours) in top and str(theirs) in top:
            margin = top[str(theirs)] - top[str(ours)]
    return Difference(request=number, position=position, expected=theirs, found=ours, margin=margin)


def _at(tokens: list[int], position: int) -> int:
    return tokens[position] if position < len(tokens) else -1
