"""Equal content, equal fingerprint: how cells, arms and effective settings are told apart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from workers.protocol import BatchPlan, Check, Patch, PatchState


def canonical(value: Any) -> str:
    """``value`` as JSON that does not depend on the order of keys: sorted, without white space, ASCII.

    Raises:
        ValueError: NaN or infinity somewhere in ``value``, or a cycle.
        TypeError: something that JSON does not have.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def digest(value: Any, length: int = 16) -> str:
    """The first ``length`` hexadecimal digits (at most 64) of the SHA-256 of ``canonical(value)``."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:length]


def effective_fingerprint(
    effective: Mapping[str, Any],
    patches: Mapping[Patch, PatchState],
    env: Mapping[str, str],
    batch: Mapping[str, Any],
    checks: Iterable[Check],
    environment: str,
    evaluation: Mapping[str, Any] | None = None,
) -> str:
    """What a cell would really run. Two cells of a sweep with the same fingerprint need one run only.

    Args:
        effective: settings as the engine resolved them.
        patches: as they were found after the request was carried out.
        env: environment variables of the engine.
        batch: fields of a ``BatchPlan``; those that are missing have its defaults.
        checks: in any order.
        environment: name of the engine environment.
        evaluation: fields of an ``Evaluation`` where one is asked for.
    """
    return digest(
        {
            "effective": dict(effective),
            "patches": dict(patches),
            "env": dict(env),
            "batch": BatchPlan(**batch).model_dump(),
            "checks": sorted(set(checks)),
            "environment": environment,
            "evaluation": dict(evaluation or {}),
        }
    )
