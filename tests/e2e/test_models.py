"""Other models, precisions, layouts and ways to submit requests, on real engines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from e2e.command import Finished, run
from workers.engine.models import locate

pytestmark = pytest.mark.engine

MATRIX = """
name: models
engine:
  tensor_parallel_size: 2
  compilation_config.pass_config.enable_sp: true
  compilation_config.pass_config.sp_min_token_num: 1
  compilation_config.splitting_ops: []
checks: [residual]
include:
  - name: llama-bfloat16
    model: tiny:llama
    dtype: bfloat16
    compilation_config.pass_config.sp_min_token_num: 8
    batch.prefix_caching: true
  - {name: qwen3-float32, model: CHECKPOINT, dtype: float32}
  - {name: qwen3-bfloat16, model: "tiny:qwen3", dtype: bfloat16, batch.full_bytes: 1}
  - name: experts-float32
    model: tiny:qwen3_moe
    dtype: float32
    enable_prompt_embeds: true
    batch.prompt_embeds: true
  - {name: experts-bfloat16, model: "tiny:qwen3_moe", dtype: bfloat16}
  - name: four-ranks
    model: "tiny:llama?hidden=256&heads=8&kv_heads=4"
    dtype: float32
    tensor_parallel_size: 4
    max_num_batched_tokens: 128
    max_num_seqs: 32
  - {name: two-stages, model: "tiny:llama?layers=4", dtype: float32, pipeline_parallel_size: 2}
"""

TWO_RANKS = ["llama-bfloat16", "qwen3-float32", "qwen3-bfloat16", "experts-float32", "experts-bfloat16", "two-stages"]
REWRITTEN = {"experts-float32": [4, 4], "two-stages": [4, 4, 4, 4]}
"""Where the embedding is outside of the graph, and of 4 layers 2 in each stage; elsewhere 5 on each rank."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    home: Path = tmp_path_factory.mktemp("models")
    matrix = home / "models.yaml"
    matrix.write_text(MATRIX.replace("CHECKPOINT", str(_sharded(home))))
    return run(home, matrix)


def _sharded(home: Path) -> Path:
    """A checkpoint as a hub has it: several files of weights and an index."""
    folder = home / "checkpoint"
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(locate("tiny:qwen3?seed=7", home / "models"))
    model.save_pretrained(folder, max_shard_size="500KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    return folder


def _compared(cell: dict[str, Any]) -> dict[str, Any]:
    """The cell's own arm against the one without SP."""
    found = cell["residual"]["comparisons"]
    return next(item for item in found if (item["subject"], item["against"]) == ("probe", "replicated"))


def _invariants(cell: dict[str, Any]) -> dict[str, set[bool | None]]:
    found: dict[str, set[bool | None]] = {}
    for invariant in cell["invariants"]:
        found.setdefault(invariant["name"], set()).add(invariant["held"])
    return found


@pytest.mark.parametrize("name", TWO_RANKS)
def test_two_ranks_are_bit_equal(models: Finished, name: str) -> None:
    cell = models.cell(name)
    assert cell["verdict"] == "pass", cell["reasons"]
    assert cell["residual"]["bitwise_equal"] is True
    compared = _compared(cell)
    assert (compared["floor"], compared["missing"]) == ("bitwise", [])
    assert compared["sites"] == (9 if name == "two-stages" else 5)
    assert cell["exercised"]["sequence_parallelism"]["per_rank"] == REWRITTEN.get(name, [5, 5])


@pytest.mark.parametrize("name", [*TWO_RANKS, "four-ranks"])
def test_every_invariant_that_can_be_checked_holds(models: Finished, name: str) -> None:
    found = _invariants(models.cell(name))
    assert all(False not in held for held in found.values()), models.cell(name)["invariants"]
    for invariant in ("shards-complete", "token-order", "gathered-equal", "norm-weights-equal", "collectives"):
        assert True in found[invariant], invariant
    assert True in found["graphs-equal"]
    assert (True in found["boundary"]) is (name == "two-stages")


def test_below_the_threshold_ranks_hold_every_token(models: Finished) -> None:
    cell = models.cell("llama-bfloat16")
    compared = _compared(cell)
    assert compared["scattered_rows"] > 0
    assert compared["replicated_rows"] > 0
    assert True in _invariants(cell)["below-threshold-replicated"]
    lengths = {step["tokens"] for step in _steps(models, "llama-bfloat16")}
    assert {1, 2, 3, 7, 8, 9} <= lengths


def test_a_prefix_is_taken_from_the_cache(models: Finished) -> None:
    first = [request for step in _steps(models, "llama-bfloat16") for request in step["requests"]]
    seen: set[int] = set()
    begun_late = [start for number, start, _ in first if number not in seen and not seen.add(number) and start > 0]
    assert begun_late, "some request starts behind what the cache holds"


def test_large_recordings_are_kept_as_sketches(models: Finished) -> None:
    cell = models.cell("qwen3-bfloat16")
    assert _compared(cell)["sketched"] is True
    index = json.loads((models.arm_folder("qwen3-bfloat16", "probe") / "taps-rank0.json").read_text())
    assert index["whole"] is False
    assert _compared(models.cell("experts-bfloat16"))["sketched"] is False


def test_batches_hold_prompts_and_decoding_requests_together(models: Finished) -> None:
    mixed = [
        step
        for step in _steps(models, "experts-bfloat16")
        if any(count > 1 for _, _, count in step["requests"]) and any(first > 0 for _, first, _ in step["requests"])
    ]
    decoding = [step for step in _steps(models, "experts-bfloat16") if len(step["requests"]) > 1]
    assert mixed
    assert decoding


def test_four_ranks_are_within_the_measured_noise(models: Finished) -> None:
    cell = models.cell("four-ranks")
    assert cell["verdict"] == "pass", cell["reasons"]
    compared = _compared(cell)
    assert (compared["floor"], compared["bitwise_required"], compared["ranks"]) == ("measured", False, 4)
    assert 0 < compared["worst_score"] <= 3
    assert compared["seeds"] == [1, 2, 3, 4]
    assert {(score["site"], score["rank"]) for score in compared["scores"]} == {
        (site, rank) for site in ("embed", "0.attn", "0.mlp", "1.attn", "1.mlp") for rank in range(4)
    }
    assert cell["exercised"]["sequence_parallelism"]["per_rank"] == [5, 5, 5, 5]


def _steps(models: Finished, name: str) -> list[dict[str, Any]]:
    index = json.loads((models.arm_folder(name, "probe") / "taps-rank0.json").read_text())
    steps: list[dict[str, Any]] = index["steps"]
    return steps
