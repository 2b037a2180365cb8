"""``shardproof bench``: what it measures, and what it writes. Never how fast anything is."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from service import bench, cli
from service.dispatch import questions
from service.settings import Settings
from workers.bench import NAMES, Measured, __main__, residual
from workers.protocol import Environment
from workers.residual.sketch import BYTES_PER_TOKEN

TINY = residual.Sizes(hidden=(16, 32), tokens=8, memory=1, seconds=0.0, repeats=3)
ANSWER = {
    "name": "residual",
    "figure": 0.25,
    "unit": "of the throughput of a copy",
    "goal": 0.3,
    "rows": [{"hidden": 16, "dtype": "float32", "sketch_to_copy": 0.25}],
    "environment": {"vllm": "0.31.0", "threads": 1},
}


def test_residual_measures_every_size_and_operation() -> None:
    threads = torch.get_num_threads()
    found = residual.measure(TINY)
    assert torch.get_num_threads() == threads
    assert [(row["hidden"], row["dtype"]) for row in found.rows] == [
        (16, "float32"),
        (16, "bfloat16"),
        (32, "float32"),
        (32, "bfloat16"),
    ]
    for row in found.rows:
        assert row["bytes_per_token"] == row["hidden"] * (4 if row["dtype"] == "float32" else 2)
        assert row["sketch_bytes_per_token"] == BYTES_PER_TOKEN
        assert row["copy_gb_s"] > 0
        assert all(row[f"{name}_gb_s"] >= 0 for name in ("equal", "score", "sketch"))
    ratios = [row[f"{name}_to_copy"] for row in found.rows for name in ("equal", "score", "sketch")]
    assert (found.figure, found.goal, found.threads) == (min(ratios), 0.3, 1)


@pytest.mark.parametrize("dtype", TINY.dtypes, ids=str)
def test_recordings_are_what_the_operations_need(dtype: torch.dtype) -> None:
    """Else ``score`` would stop at equality, and equality at the first number."""
    first, second = residual._recordings(64, dtype, TINY)
    assert first.residual.data_ptr() != second.residual.data_ptr()
    assert torch.equal(first.residual, first.same)
    assert (first.residual != first.other).float().mean() > 0.99


def test_the_set_of_tensors_is_as_large_as_asked() -> None:
    sizes = residual.Sizes(tokens=8, memory=10 * 8 * 16 * 4)
    assert len(residual._recordings(16, torch.float32, sizes)) == 10


def test_the_process_writes_its_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reply = tmp_path / "reply.json"
    environment = Environment(vllm="1", torch="2", ray=None, python="3", device="cpu", devices=0, cores=2)
    monkeypatch.setattr(__main__, "measure", lambda: Measured(0.5, "things", 0.3, 1, [{"hidden": 16}]))
    monkeypatch.setattr(__main__, "environment", lambda: environment)
    monkeypatch.setattr(sys, "argv", ["bench", "residual", "--reply", str(reply)])
    __main__.main()
    answer = json.loads(reply.read_text())
    assert set(answer) == {"name", "figure", "unit", "goal", "rows", "environment"}
    assert (answer["name"], answer["rows"], answer["environment"]["threads"]) == ("residual", [{"hidden": 16}], 1)


def test_it_is_asked_of_the_engine_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(settings: Settings, arguments: list[str], env: dict[str, str] | None) -> str:
        asked.append(arguments)
        Path(arguments[arguments.index("--reply") + 1]).write_text(json.dumps(ANSWER))
        return ""

    monkeypatch.setattr(questions, "_run", run)
    assert bench.run_bench("residual", Settings(home=tmp_path)) == ANSWER
    assert asked[0][:3] == ["-m", "workers.bench", "residual"]


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    answer = dict(ANSWER)
    monkeypatch.setattr(questions, "bench", lambda settings, name: json.dumps(answer))
    return answer


@pytest.mark.parametrize(("figure", "said"), [(0.25, "the goal of 0.3 is not reached"), (0.3, "0.3 is reached")])
def test_the_command_shows_and_writes(answered: dict[str, Any], tmp_path: Path, figure: float, said: str) -> None:
    answered["figure"] = figure
    done = CliRunner().invoke(cli.app, ["bench", "residual", "--json", str(tmp_path / "bench.json")])
    assert done.exit_code == 0
    assert said in done.output
    assert "float32" in done.output
    assert json.loads((tmp_path / "bench.json").read_text()) == answered


def test_another_name_is_refused() -> None:
    done = CliRunner().invoke(cli.app, ["bench", "residuals"])
    assert isinstance(done.exception, cli.Refused)
    assert str(done.exception) == f"there is no benchmark 'residuals'; choose {' or '.join(NAMES)}"
