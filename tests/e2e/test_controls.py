"""Controls: known faults that have to be found, on a real engine."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from e2e.command import Finished, run

pytestmark = pytest.mark.engine

MATRIX = """
name: controls
engine:
  model: tiny:llama
  dtype: float32
  tensor_parallel_size: 2
  compilation_config.pass_config.sp_min_token_num: 1
checks: [residual]
traces: true
include:
  # The stock CPU communicator reduces in place an operation that is declared functional. Nobody expects it to fail.
  - name: in-place-collective
    compilation_config.pass_config.enable_sp: false
    env.SHARDPROOF_CPU_COLLECTIVE: in-place
  # vLLM's pass knows norms with an epsilon of 1e-5 and 1e-6.
  - name: unknown-norm
    model: tiny:llama?rms_norm_eps=1e-3
    compilation_config.pass_config.enable_sp: true
    compilation_config.splitting_ops: []
    patches.fallback_fast_path: "off"
    expect: not-exercised
"""


@pytest.fixture(scope="module")
def controls(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    home: Path = tmp_path_factory.mktemp("controls")
    matrix = home / "controls.yaml"
    matrix.write_text(MATRIX)
    return run(home, matrix)


def test_an_in_place_collective_is_a_residual_fault(controls: Finished) -> None:
    cell = controls.cell("in-place-collective")
    assert (cell["verdict"], cell["ok"]) == ("fail-residual", False), cell["reasons"]
    residual = cell["residual"]
    assert (residual["subject"], residual["against"]) == ("probe", "reference")
    assert residual["worst_score"] > 1000


def test_traces_that_were_asked_for_are_there_and_whole(controls: Finished) -> None:
    name = "unknown-norm"
    (traces,) = [arm["traces"] for arm in controls.cell(name)["arms"]]
    assert traces["notes"] == []
    folder = Path(traces["folder"])
    assert folder == controls.arm_folder(name, "probe")
    assert [re.search(r"rank_\d", log)[0] for log in sorted(traces["logs"])] == ["rank_0", "rank_1"]  # type: ignore[index]
    assert all((folder / log).stat().st_size > 10_000 for log in traces["logs"])
    report = (folder / traces["tlparse"]).read_text()
    assert all(f"rank_{rank}" in report and (folder / f"tlparse/rank_{rank}/index.html").exists() for rank in (0, 1))
    drawn = json.loads((folder / traces["perfetto"]).read_text())["traceEvents"]
    processes = {event["pid"]: event["args"]["name"] for event in drawn if event["name"] == "process_name"}
    assert {"main process", "rank 0", "rank 1"} <= set(processes.values())
    for rank in ("rank 0", "rank 1"):
        names = {event["name"] for event in drawn if processes[event["pid"]] == rank}
        assert {"load_model", "bytecode_tracing", "GraphLowering.codegen", "pass.shardproof.TapPass"} <= names


def test_an_unexpected_failure_makes_exit_status_1(controls: Finished) -> None:
    assert controls.status == 1
    assert controls.report is not None
    assert controls.report["summary"]["unexpected"] == 1


def test_a_norm_the_pass_does_not_know_is_not_exercised(controls: Finished) -> None:
    cell = controls.cell("unknown-norm")
    assert (cell["verdict"], cell["ok"]) == ("not-exercised", True), cell["reasons"]
    assert cell["exercised"]["sequence_parallelism"] == {
        "expected": 5, "matched": 0, "per_rank": [0, 0], "expected_per_rank": [5, 5],
    }  # fmt: skip
    assert cell["residual"]["bitwise_equal"] is True


def test_without_the_fast_path_vllm_s_operations_take_the_slow_one(controls: Finished) -> None:
    found = controls.cell("unknown-norm")["fallback"]
    assert (found["state"], found["arm"], found["reason"]) == ("removed", "probe", None)
    slow = {arm["arm"]: [{op["op"] for op in rank["ops"]} for rank in arm["ranks"]] for arm in found["arms"]}
    unpatched = {"vllm::all_reduce", "vllm::unified_attention_with_output"}
    assert [ops >= unpatched for ops in slow["probe"]] == [True, True]
    assert [ops & unpatched for ops in slow["replicated"]] == [set(), set()], "there the patch is on"
    assert found["calls"] == sum(map(len, slow["probe"]))
