"""What two arms scored on the same tasks, side by side. Plain arithmetic, without torch.

An arm that evaluated left behind (``workers.engine.evaluate``)::

    {"lm_eval": version, "limit": …, "seed": …, "resamples": …, "not_finite": n, "truncated": n,
     "tasks": [{"task", "metric", "filter", "num_fewshot", "samples", "inputs", "value", "stderr", "scores"}]}

``inputs`` is a digest of all samples and prompts of the task; ``scores`` has one number per sample, or is ``None``
where the metric is no mean of such numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from workers.protocol import Accuracy, Role, TaskScore

Scored = dict[str, Any]
_Key = tuple[str, str, str]


def accuracy(results: Mapping[Role, Mapping[str, Any]]) -> Accuracy | None:
    """The accuracy of the arm that evaluated, beside that of its twin with SP off.

    ``None`` when nothing was evaluated. Where the shared arm stands in for the cell's own, it stands alone.
    """
    own = results.get(Role.EVAL, {}).get("accuracy")
    shared = results.get(Role.EVAL_REPLICATED, {}).get("accuracy")
    if own is None:
        return None if shared is None else compare(shared, None)
    return compare(own, shared)


def compare(subject: Scored, control: Scored | None) -> Accuracy:
    """``subject``'s scores, and how far they are from ``control``'s."""
    own, other = _by_key(subject), _by_key(control) if control else {}
    missing = [f"{_name(key)} was scored in one arm only" for key in own.keys() ^ other.keys()] if control else []
    tasks = []
    for key, item in own.items():
        twin = other.get(key)
        if twin is not None and item["inputs"] != twin["inputs"]:
            missing.append(f"{_name(key)}: the two arms were given different samples")
            twin = None
        tasks.append(_score(item, twin))
    return Accuracy(
        subject=Role.EVAL,
        against=Role.EVAL_REPLICATED if control else None,
        tasks=tasks,
        not_finite=subject["not_finite"],
        control_not_finite=control["not_finite"] if control else None,
        truncated=subject["truncated"],
        missing=sorted(missing),
        limit=subject["limit"],
        seed=subject["seed"],
        resamples=subject["resamples"],
        lm_eval=subject["lm_eval"],
    )


def _by_key(scored: Scored) -> dict[_Key, dict[str, Any]]:
    return {(item["task"], item["metric"], item["filter"]): item for item in scored["tasks"]}


def _name(key: _Key) -> str:
    return f"{key[1]} of {key[0]} (filter {key[2]})"


def _score(item: dict[str, Any], twin: dict[str, Any] | None) -> TaskScore:
    plain = TaskScore(
        task=item["task"],
        metric=item["metric"],
        filter=item["filter"],
        samples=item["samples"],
        num_fewshot=item["num_fewshot"],
        value=_finite(item["value"]),
        stderr=_finite(item["stderr"]),
    )
    if twin is None:
        return plain
    return plain.model_copy(
        update={
            "control_value": _finite(twin["value"]),
            "control_stderr": _finite(twin["stderr"]),
            **_difference(item, twin),
        }
    )


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def _difference(item: dict[str, Any], twin: dict[str, Any]) -> dict[str, Any]:
    value, control = _finite(item["value"]), _finite(twin["value"])
    if value is None or control is None:
        return {}
    difference = value - control
    if item["scores"] is None or twin["scores"] is None:
        errors = _finite(item["stderr"]), _finite(twin["stderr"])
        known = None not in errors
        return {"difference": difference, "difference_stderr": math.hypot(*filter(None, errors)) if known else None}
    pairs = [one - other for one, other in zip(item["scores"], twin["scores"], strict=True)]
    return {
        "difference": difference,
        "difference_stderr": mean_stderr(pairs),
        "paired": True,
        "changed": sum(pair != 0 for pair in pairs),
    }


def mean_stderr(numbers: list[float]) -> float | None:
    """The standard error of the mean of ``numbers``; ``None`` for fewer than two, which show no spread."""
    if len(numbers) < 2:
        return None
    mean = math.fsum(numbers) / len(numbers)
    squares = math.fsum((number - mean) ** 2 for number in numbers)
    return math.sqrt(squares / (len(numbers) - 1) / len(numbers))
