"""The accuracy arm on real engines: SP on, SP off, and SP with its guard taken away. Three starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from e2e.command import Finished, run

pytestmark = pytest.mark.engine

LIMIT = 16
MATRIX = f"""
name: accuracy
engine:
  model: tiny:llama
  dtype: float32
  tensor_parallel_size: 2
  compilation_config.pass_config.sp_min_token_num: 1
  eval.tasks: [shardproof_sums, shardproof_repeat]
  eval.limit: {LIMIT}
checks: [eval]
include:
  - name: "off"
    compilation_config.pass_config.enable_sp: false
  - name: sp
    compilation_config.pass_config.enable_sp: true
    compilation_config.splitting_ops: []
  - name: guard-removed
    compilation_config.pass_config.enable_sp: true
    compilation_config.splitting_ops: [vllm::unified_attention_with_output]
    patches.full_graph_sp: "off"
    expect: fail-output
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    home: Path = tmp_path_factory.mktemp("accuracy")
    matrix = home / "accuracy.yaml"
    matrix.write_text(MATRIX)
    return run(home, matrix)


@pytest.fixture(scope="module")
def expected(finished: Finished) -> dict[str, Any]:
    """The same evaluation by lm_eval's own adapter for ``transformers``, on the same weights."""
    from workers.engine import evaluate, tasks
    from workers.protocol import Evaluation

    folder = str(Path(__file__).parents[2] / "deploy" / "tasks")
    asked = Evaluation(tasks=["shardproof_sums", "shardproof_repeat"], limit=LIMIT, folders=[folder])
    loaded = tasks.load(asked)
    from lm_eval.models.huggingface import HFLM

    (model,) = (finished.home / "models").iterdir()
    return evaluate.run(HFLM(pretrained=str(model), device="cpu", dtype="float32", batch_size=4), loaded, asked)


def scores(finished: Finished, cell: str) -> dict[tuple[str, str], dict[str, Any]]:
    return {(item["task"], item["metric"]): item for item in finished.cell(cell)["accuracy"]["tasks"]}


def test_sp_changes_no_score(finished: Finished) -> None:
    cell = finished.cell("sp")
    assert cell["verdict"] == "pass", cell["reasons"]
    assert (cell["accuracy"]["against"], cell["accuracy"]["missing"]) == ("eval-replicated", [])
    found = scores(finished, "sp")
    assert len(found) == 3
    for item in found.values():
        assert (item["difference"], item["difference_stderr"], item["changed"], item["paired"]) == (0.0, 0.0, 0, True)
        assert item["samples"] == LIMIT
    accuracy = found["shardproof_sums", "acc"]
    assert accuracy["value"] == accuracy["control_value"]
    assert 0 < accuracy["stderr"] < 0.2
    assert cell["exercised"]["sequence_parallelism"]["per_rank"] == [5, 5]


def test_a_cell_without_sp_shares_the_engine_and_stands_alone(finished: Finished) -> None:
    cell = finished.cell("off")
    assert cell["verdict"] == "pass", cell["reasons"]
    assert (cell["accuracy"]["against"], cell["arms"]) == (None, [])
    control = scores(finished, "sp")
    assert {key: item["value"] for key, item in scores(finished, "off").items()} == {
        key: item["control_value"] for key, item in control.items()
    }


def test_samples_score_what_they_score_in_transformers(finished: Finished, expected: dict[str, Any]) -> None:
    kept = json.loads((finished.arm_folder("sp", "eval") / "samples.json").read_text())
    sums = zip(kept["shardproof_sums"], expected["samples"]["shardproof_sums"], strict=True)
    compared = 0
    for ours, theirs in sums:
        assert ours["doc"] == theirs["doc"]
        for ((own, greedy),), ((value, greedily),) in zip(ours["resps"], theirs["resps"], strict=True):
            assert own == pytest.approx(value, abs=1e-3)
            assert greedy is bool(greedily)
            compared += 1
    assert compared == 4 * LIMIT
    repeats = zip(kept["shardproof_repeat"], expected["samples"]["shardproof_repeat"], strict=True)
    assert all(ours["resps"] == theirs["resps"] for ours, theirs in repeats)


def test_the_report_has_lm_eval_s_own_figures(finished: Finished, expected: dict[str, Any]) -> None:
    found, theirs = scores(finished, "sp")["shardproof_sums", "acc"], expected["results"]["shardproof_sums"]
    assert found["value"] == theirs["acc,none"]
    assert found["stderr"] == pytest.approx(theirs["acc_stderr,none"])


def test_an_engine_that_computes_no_numbers_is_found(finished: Finished) -> None:
    cell = finished.cell("guard-removed")
    assert (cell["verdict"], cell["ok"]) == ("fail-output", True), cell["reasons"]
    assert cell["accuracy"]["not_finite"] > 0
    assert cell["accuracy"]["control_not_finite"] == 0


def test_scores_are_printed(finished: Finished) -> None:
    assert "sp: acc of shardproof_sums" in finished.printed
    assert finished.status == 0
