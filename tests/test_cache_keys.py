"""Why a warm start found nothing, told from the files that vLLM leaves beside what it compiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workers.cache_keys import FACTORS, KEPT, LONGEST, changed, differences, keep
from workers.protocol import KeyDifference, KeyFactor

FACTORS_COLD: dict[str, Any] = {
    "code_hash": "c0de",
    "compiler_hash": "c0",
    "config_hash": "4a9cb84205",
    "env": {"VLLM_A": False, "VLLM_B": "x", "VLLM_LIST": ["a", "b"], "VLLM_NONE": None},
}


def wrote(root: Path, key: str, rank: int, factors: Any, part: str = "backbone") -> None:
    """What vLLM writes when it compiles."""
    folder = root / "torch_compile_cache" / key / f"rank_{rank}_0" / part
    folder.mkdir(parents=True)
    (folder / FACTORS).write_text(factors if isinstance(factors, str) else json.dumps(factors))
    (folder / "artifact").write_bytes(b"large")


def changed_to(**env: Any) -> dict[str, Any]:
    return FACTORS_COLD | {"env": FACTORS_COLD["env"] | env}


@pytest.fixture
def cold(tmp_path: Path) -> Path:
    """The folder of a cold start of two ranks, its keys kept."""
    for rank in (0, 1):
        wrote(tmp_path / "cache", "aaaa", rank, FACTORS_COLD)
    keep(tmp_path / "cache", tmp_path / "cold")
    return tmp_path / "cold"


def warm(cold: Path, key: str, factors: Any, ranks: tuple[int, ...] = (0, 1), **place: str) -> Path:
    """The folder of a warm start in which ``ranks`` compiled once more."""
    cache = cold.parent / "cache"
    for rank in ranks:
        wrote(cache, key, rank, factors, **place)
    keep(cache, cold.parent / "warm", [cold])
    return cold.parent / "warm"


def test_keys_outlive_the_cache_and_nothing_else_does(cold: Path) -> None:
    kept = sorted(path.relative_to(cold / KEPT) for path in cold.rglob("*") if path.is_file())
    assert kept == [Path("aaaa", f"rank_{rank}_0", "backbone", FACTORS) for rank in (0, 1)]
    assert json.loads((cold / KEPT / kept[0]).read_text()) == FACTORS_COLD


def test_a_later_start_keeps_only_what_it_added(cold: Path) -> None:
    folder = warm(cold, "bbbb", changed_to(VLLM_A=True))
    assert [path.name for path in (folder / KEPT).iterdir()] == ["bbbb"]


def test_the_factor_that_changed_is_named_on_each_rank(cold: Path) -> None:
    folder = warm(cold, "bbbb", changed_to(VLLM_A=True))
    named = [KeyFactor(name="env.VLLM_A", cold="false", warm="true")]
    assert differences(cold, folder, [0, 1]) == [
        KeyDifference(rank=rank, part="backbone", changed=named) for rank in (0, 1)
    ]
    assert [found.rank for found in differences(cold, folder, [1])] == [1]


def test_equal_keys_name_no_factor(cold: Path) -> None:
    """The control: another folder with the same content, and no folder at all."""
    folder = warm(cold, "bbbb", FACTORS_COLD, ranks=(0,))
    assert differences(cold, folder, [0, 1]) == [KeyDifference(rank=0, part="backbone"), KeyDifference(rank=1)]


@pytest.mark.parametrize(
    ("factors", "said"),
    [
        (FACTORS_COLD | {"config_hash": "ff58b4bd05"}, ["config_hash", '"4a9cb84205"', '"ff58b4bd05"']),
        (changed_to(VLLM_LIST=["a"]), ["env.VLLM_LIST", '["a", "b"]', '["a"]']),
        (changed_to(VLLM_NONE=0), ["env.VLLM_NONE", "null", "0"]),
        (changed_to(VLLM_NEW="n"), ["env.VLLM_NEW", "absent", '"n"']),
        ({**FACTORS_COLD, "env": {"VLLM_A": False, "VLLM_B": "x", "VLLM_LIST": ["a", "b"]}},
         ["env.VLLM_NONE", "null", "absent"]),
    ],
)  # fmt: skip
def test_every_kind_of_factor_has_its_path_and_values(cold: Path, factors: dict[str, Any], said: list[str]) -> None:
    (found,) = differences(cold, warm(cold, "bbbb", factors), [0])
    assert [[factor.name, factor.cold, factor.warm] for factor in found.changed] == [said]


def test_long_values_are_cut_to_where_they_differ() -> None:
    one, other = "a" * 200 + "b" + "c" * 200, "a" * 200 + "d" + "c" * 200
    (found,) = changed({"x": one}, {"x": other})
    assert "b" in found.cold
    assert "d" in found.warm
    assert len(found.cold) == LONGEST + 2
    (found,) = changed({"x": one}, {"x": one + "e"})
    assert (found.cold[0], found.cold[-1], found.warm[-1]) == ("…", "c", "e")


def test_what_cannot_be_compared_says_so(cold: Path, tmp_path: Path) -> None:
    (found,) = differences(cold, warm(cold, "bbbb", '{"env": {'), [0])
    assert (found.problem or "").startswith("a cache key cannot be read: ")
    (found,) = differences(tmp_path / "nothing", tmp_path / "warm", [0])
    assert found.problem == "the cold start left no cache key to compare with"


def test_another_part_of_the_model_is_not_taken_for_the_same(cold: Path) -> None:
    (found,) = differences(cold, warm(cold, "bbbb", FACTORS_COLD, part="eagle_head"), [0])
    assert (found.part, found.problem) == ("eagle_head", "the cold start did not compile this part")


def test_a_key_that_cannot_be_copied_is_left_out(cold: Path, tmp_path: Path) -> None:
    (tmp_path / "warm").write_text("a file where the folder belongs")
    assert warm(cold, "bbbb", FACTORS_COLD).is_file()
