"""The factors of a cache key as this vLLM finds them itself, changed the way a user changes them."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest
from vllm import envs
from vllm.compilation import backends
from vllm.config.utils import hash_factors

from workers.cache_keys import COMPILED, FACTORS, differences, keep
from workers.protocol import KeyDifference, KeyFactor


def compiled(cache: Path) -> None:
    """A folder as ``VllmBackend`` makes it, the environment's factors being those of this process."""
    env = envs.compile_factors()
    folder = cache / COMPILED / hash_factors(env)[:10] / "rank_0_0" / "backbone"
    folder.mkdir(parents=True, exist_ok=True)
    hashes = {"config_hash": "1", "code_hash": "2", "compiler_hash": "3"}
    if not (folder / FACTORS).exists():
        (folder / FACTORS).write_text(json.dumps({"env": env} | hashes, indent=2, sort_keys=True))


def two_starts(root: Path, monkeypatch: pytest.MonkeyPatch, **between: str) -> list[KeyDifference]:
    compiled(root / "cache")
    keep(root / "cache", root / "cold")
    for name, value in between.items():
        monkeypatch.setenv(name, value)
    compiled(root / "cache")
    keep(root / "cache", root / "warm", [root / "cold"])
    return differences(root / "cold", root / "warm", [0])


def test_the_variable_that_changed_is_named_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_USE_STANDALONE_COMPILE", raising=False)
    before = envs.compile_factors()["VLLM_USE_STANDALONE_COMPILE"]
    (found,) = two_starts(tmp_path, monkeypatch, VLLM_USE_STANDALONE_COMPILE=str(int(not before)))
    named = KeyFactor(name="env.VLLM_USE_STANDALONE_COMPILE", cold=json.dumps(before), warm=json.dumps(not before))
    assert (found.changed, found.problem) == ([named], None)


def test_a_variable_that_vllm_does_not_count_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: same key, same folder, no factor."""
    found = two_starts(tmp_path, monkeypatch, VLLM_LOGGING_LEVEL="DEBUG", VLLM_CACHE_ROOT="elsewhere")
    assert found == [KeyDifference(rank=0)]


def test_this_vllm_writes_its_keys_where_they_are_looked_for() -> None:
    source = inspect.getsource(backends.VllmBackend.__call__)
    for part in (f'"{FACTORS}"', f'"{COMPILED}"', 'f"rank_{rank}_{dp_rank}"', '"env"', '"config_hash"'):
        assert part in source, part
