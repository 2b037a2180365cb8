"""Other models, precisions and numbers of ranks, on real engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.command import Finished, run

pytestmark = pytest.mark.engine

MATRIX = """
name: models
engine:
  compilation_config.pass_config.enable_sp: true
  compilation_config.pass_config.sp_min_token_num: 1
  compilation_config.splitting_ops: []
checks: [residual]
include:
  - {name: tp4, tensor_parallel_size: 4, dtype: float32, model: "tiny:llama?hidden=256&heads=8&kv_heads=4"}
  - {name: experts, tensor_parallel_size: 2, dtype: float32, model: "tiny:qwen3_moe"}
  - {name: bfloat16, tensor_parallel_size: 2, dtype: bfloat16, model: "tiny:qwen3"}
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    home: Path = tmp_path_factory.mktemp("models")
    matrix = home / "models.yaml"
    matrix.write_text(MATRIX)
    return run(home, matrix)


@pytest.mark.parametrize("name", ["experts", "bfloat16"])
def test_two_ranks_are_bit_equal(models: Finished, name: str) -> None:
    cell = models.cell(name)
    assert cell["verdict"] == "pass", cell["reasons"]
    assert cell["residual"]["bitwise_equal"] is True
    assert cell["residual"]["comparisons"][0]["floor"] == "bitwise"
    assert cell["exercised"]["sequence_parallelism"]["per_rank"] == [5, 5]


def test_four_ranks_are_within_the_measured_noise(models: Finished) -> None:
    cell = models.cell("tp4")
    assert cell["verdict"] == "pass", cell["reasons"]
    compared = cell["residual"]["comparisons"][0]
    assert (compared["floor"], compared["bitwise_required"], compared["ranks"]) == ("measured", False, 4)
    assert 0 < compared["worst_score"] <= 3
    assert {(score["site"], score["rank"]) for score in compared["scores"]} == {
        (site, rank) for site in ("embed", "0.attn", "0.mlp", "1.attn", "1.mlp") for rank in range(4)
    }
    assert cell["exercised"]["sequence_parallelism"]["per_rank"] == [5, 5, 5, 5]
