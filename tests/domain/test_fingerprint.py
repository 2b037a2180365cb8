from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.domain.fingerprint import canonical, digest, effective_fingerprint
from workers.protocol import BatchPlan, Check, Patch, PatchState

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=10,
)

CELL: dict[str, Any] = {
    "effective": {"tensor_parallel_size": 2, "compilation_config.splitting_ops": []},
    "patches": {Patch.FULL_GRAPH_SP: PatchState.APPLIED, Patch.FALLBACK_FAST_PATH: PatchState.NATIVE},
    "env": {"VLLM_USE_V1": "1"},
    "batch": {"seed": 3},
    "checks": [Check.AUDIT, Check.COMPILE],
    "environment": "default",
}


def shuffled(value: Any, random: random.Random) -> Any:
    if isinstance(value, dict):
        items = [(key, shuffled(item, random)) for key, item in value.items()]
        random.shuffle(items)
        return dict(items)
    return [shuffled(item, random) for item in value] if isinstance(value, list) else value


@settings(deadline=None, max_examples=60)
@given(VALUES, st.randoms())
def test_the_order_of_keys_does_not_count(value: Any, random: random.Random) -> None:
    assert canonical(shuffled(value, random)) == canonical(value)


@settings(deadline=None, max_examples=60)
@given(VALUES)
def test_canonical_is_plain_json(value: Any) -> None:
    text = canonical(value)
    assert json.loads(text) == value
    assert text.isascii()


def test_canonical_form() -> None:
    assert canonical({"b": [1, True, None], "a": "é"}) == '{"a":"\\u00e9","b":[1,true,null]}'
    assert canonical(1) != canonical(True)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_lacks_are_refused(number: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical({"a": [number]})


def test_digest_is_the_start_of_sha256() -> None:
    # printf '{"a":1}' | sha256sum
    assert digest({"a": 1}) == "015abd7f5cc57a2d"
    assert digest({"a": 1}, 4) == "015a"
    assert len(digest({}, 64)) == 64


@pytest.mark.parametrize(
    "change",
    [
        {"effective": {**CELL["effective"], "tensor_parallel_size": 4}},
        {"patches": {**CELL["patches"], Patch.FULL_GRAPH_SP: PatchState.REMOVED}},
        {"env": {}},
        {"batch": {"seed": 4}},
        {"checks": [Check.AUDIT]},
        {"environment": "nightly"},
        {"evaluation": {"tasks": ["gsm8k"]}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_changes_the_run_changes_the_fingerprint(change: dict[str, Any]) -> None:
    assert effective_fingerprint(**{**CELL, **change}) != effective_fingerprint(**CELL)


def test_whatever_does_not_change_the_run_does_not() -> None:
    same = {
        **CELL,
        "effective": dict(reversed(CELL["effective"].items())),
        "patches": dict(reversed(CELL["patches"].items())),
        "batch": {**BatchPlan().model_dump(), "seed": 3},
        "checks": [Check.COMPILE, Check.AUDIT],
    }
    assert effective_fingerprint(**same) == effective_fingerprint(**CELL)
