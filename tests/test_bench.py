"""``shardproof bench``: what it measures, and what it writes. Never how fast anything is."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from typer.testing import CliRunner

from service import bench, cli
from service.dispatch import questions
from service.settings import Settings
from workers.bench import LESS, NAMES, Measured, __main__, recording, residual, taps, throughput
from workers.engine.clock import clock_steps
from workers.protocol import Environment
from workers.residual.sketch import BYTES_PER_TOKEN
from workers.residual.taps import load

TINY = throughput.Sizes(hidden=(16, 32), steps=(8, 2), memory=1, seconds=0.0, repeats=3)
COMPARED = ("equal", "score", "sketch")
ANSWER = {
    "name": "residual",
    "figure": 0.25,
    "unit": "of the throughput of a copy",
    "goal": 0.3,
    "rows": [
        {"what": "sketch", "dtype": "float32", "to_copy": 0.25},
        {"what": "memory per token", "full_bytes": 4096},
        {"what": "score", "dtype": "bfloat16", "to_copy": 0.75},
    ],
    "environment": {"vllm": "0.31.0", "threads": 1},
}


@pytest.mark.slow
def test_residual_measures_every_size_and_operation(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    found = residual.measure(tmp_path, quick=True, sizes=TINY)
    assert torch.get_num_threads() == threads
    assert [(row["hidden"], row["dtype"], row["what"]) for row in found.rows] == [
        (hidden, dtype, what)
        for hidden in (16, 32)
        for dtype in ("float32", "bfloat16")
        for what in ("copy", *COMPARED, "memory per token")
    ]
    timed = [row for row in found.rows if "gb_s" in row]
    for row in timed:
        assert row["gb_s"] >= 0
        assert 0 <= row["lowest"] <= row["to_copy"] <= row["highest"] < math.inf
        assert row["times"] == 3 * (len(COMPARED) if row["what"] == "copy" else 1)
    assert found.figure == min(row["to_copy"] for row in timed if row["what"] in COMPARED)
    assert (found.goal, found.threads) == (0.3, 1)


def test_memory_per_token_is_what_the_recording_takes() -> None:
    """Whole, a token takes its numbers at every site; as a sketch always the same."""
    for shape in TINY.shapes():
        row = throughput.memory(recording.make(shape))
        assert row["sites"] == 2 * shape.layers + 1
        assert row["full_bytes"] == row["sites"] * shape.hidden * shape.dtype.itemsize
        assert row["sketch_bytes"] == row["sites"] * BYTES_PER_TOKEN


def test_seconds_are_those_that_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the operation they are its own, and none of them the copy's."""
    now = 5.0

    def operation(_: recording.Recordings) -> None:
        nonlocal now
        now += 0.25

    monkeypatch.setattr(throughput.time, "thread_time", lambda: now)
    copied, done = throughput._timed(operation, recording.make(next(TINY.shapes())), TINY)
    assert (copied, done) == ([0.0] * 3, [0.25] * 3)


@pytest.mark.parametrize("dtype", TINY.dtypes, ids=str)
def test_recordings_are_what_the_operations_need(dtype: torch.dtype) -> None:
    """Else ``score`` would stop at equality, ``equal`` at the first number, and either compare less than is counted."""
    made = recording.make(recording.Shape(64, dtype, (8, 2), layers=1))
    addresses = {shard.data_ptr() for shard in (*made.shards, *made.room)}
    assert len(addresses) == 2 * recording.RANKS * len(made.shape.steps) * made.shape.sites
    numbers = sum(made.shape.steps) * 64 * made.shape.sites
    assert made.size == numbers * dtype.itemsize
    for whole, bitwise, equal in ((made.same, True, True), (made.other, False, False)):
        found = throughput.compared(made, whole, bitwise)
        assert (found.missing, found.elements, found.bitwise_equal) == ([], numbers, equal)
        assert found.first_divergence is None
        assert (found.worst_score == 0) == equal
    assert throughput.compared(made, made.other, bitwise=True).first_divergence is not None


@pytest.mark.parametrize("dtype", TINY.dtypes, ids=str)
def test_every_number_of_the_other_recording_is_rounded_otherwise(dtype: torch.dtype) -> None:
    made = recording.make(recording.Shape(64, dtype, (8,), layers=1))
    same, other = made.same.ranks[0]["0/2"], made.other.ranks[0]["0/2"]
    assert isinstance(same, torch.Tensor)
    assert isinstance(other, torch.Tensor)
    assert (same != other).all()
    assert ((same.double() - other.double()).abs() <= torch.finfo(dtype).eps * same.double().abs()).all()


def test_a_recording_is_as_large_as_asked() -> None:
    sizes = throughput.Sizes(steps=(8,), memory=10 * 8 * 16 * 4, hidden=(16,), dtypes=(torch.float32,))
    (shape,) = sizes.shapes()
    assert (shape.layers, shape.sites) == (5, 11)


# --- the cost of taps ------------------------------------------------------------------------------------------------

LOAD = taps.Load(waves=3, requests=2, prompt=5, answer=3)


def test_the_load_is_the_plan_that_is_run() -> None:
    assert LOAD.plan.waves == [[5, 5], [5, 5], [5, 5]]
    assert LOAD.plan.max_tokens == 3


def test_steps_are_sorted_by_what_they_did() -> None:
    """The first wave warms up."""
    seconds = [9.0, 9.0, 9.0, 2.0, 1.0, 1.1, 2.5, 1.2, 1.3]
    assert taps.split(seconds, LOAD) == taps.Times(prefill=[2.0, 2.5], decode=[1.0, 1.1, 1.2, 1.3])
    with pytest.raises(taps.BenchFailed, match="did 10 steps where the load takes 9"):
        taps.split([*seconds, 1.0], LOAD)


def test_tapped_is_held_against_untapped() -> None:
    untapped = [taps.Times([0.2], [0.010, 0.012]), taps.Times([0.2], [0.010, 0.012])]
    tapped = [taps.Times([0.3], [0.011, 0.011]), taps.Times([0.5], [0.022, 0.022])]
    prefill, decode = taps.rows(untapped, tapped, LOAD)
    assert (prefill["what"], prefill["tokens"], decode["what"], decode["tokens"]) == (
        "prefill step",
        10,
        "decode step",
        2,
    )
    assert (prefill["untapped_ms"], prefill["tapped_ms"], prefill["tapped_to_untapped"]) == (200.0, 400.0, 2.0)
    assert (prefill["lowest"], prefill["highest"], prefill["untapped_to_itself"]) == (1.5, 2.5, 1.0)
    assert (decode["tapped_to_untapped"], decode["lowest"], decode["highest"]) == (1.5, 1.0, 2.0)
    assert decode["times"] == 4


def test_the_engines_differ_in_their_taps_alone(tmp_path: Path) -> None:
    """Each has a cache of its own: what is compiled with taps is another graph."""
    untapped, tapped = (taps._spec(tmp_path, tmp_path, LOAD.plan, on, 0).model_dump() for on in (False, True))
    differing = {name for name in untapped if untapped[name] != tapped[name]}
    assert differing == {"taps", "key", "folder", "cache_root"}
    again = taps._spec(tmp_path, tmp_path, LOAD.plan, True, 1)
    assert (again.cache_root, again.folder) == (tapped["cache_root"], str(tmp_path / "tapped-1"))


def test_every_step_of_an_engine_is_clocked() -> None:
    class Engine:
        def step(self) -> list[str]:
            time.sleep(0.01)
            return ["answer"]

    engine = Engine()
    seconds = clock_steps(engine)  # type: ignore[arg-type]
    assert [engine.step(), engine.step()] == [["answer"], ["answer"]]
    assert len(seconds) == 2
    assert min(seconds) >= 0.01


@pytest.mark.engine
def test_the_cost_is_that_of_real_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One start of each kind, of the smallest model. The tapped one has recorded what it was timed with."""
    monkeypatch.setattr(taps, "STARTS", 1)
    monkeypatch.setitem(taps.ENGINE, "model", "tiny:llama")
    rows = taps.cost(tmp_path, tmp_path / "models", LOAD)
    assert [(row["what"], row["times"]) for row in rows] == [("prefill step", 2), ("decode step", 4)]
    for row in rows:
        assert 0 < row["untapped_ms"] < math.inf
        assert 0 < row["tapped_ms"] < math.inf
    assert load(tmp_path / "tapped-0", taps.RANKS).tokens == [10, 2, 2] * LOAD.waves
    assert not list((tmp_path / "untapped-0").glob("taps-*"))


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_process_writes_its_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reply = tmp_path / "reply.json"
    environment = Environment(vllm="1", torch="2", ray=None, python="3", device="cpu", devices=0, cores=2)
    asked: list[tuple[Path, bool]] = []

    def measure(models: Path, quick: bool) -> Measured:
        asked.append((models, quick))
        return Measured(0.5, "things", 0.3, 1, [{"hidden": 16}])

    monkeypatch.setattr(__main__.residual, "measure", measure)
    monkeypatch.setattr(__main__, "environment", lambda: environment)
    monkeypatch.setattr(sys, "argv", ["bench", "residual", "--models", "/models", "--reply", str(reply), "--quick"])
    __main__.main()
    assert asked == [(Path("/models"), True)]
    answer = json.loads(reply.read_text())
    assert set(answer) == {"name", "figure", "unit", "goal", "better", "rows", "environment"}
    assert (answer["name"], answer["rows"], answer["environment"]["threads"]) == ("residual", [{"hidden": 16}], 1)


@pytest.mark.parametrize("quick", [True, False])
def test_it_is_asked_of_the_engine_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: bool) -> None:
    asked: list[list[str]] = []

    def run(settings: Settings, arguments: list[str], timeout_s: float, before: Callable[[], None]) -> str:
        asked.append(arguments)
        Path(arguments[arguments.index("--reply") + 1]).write_text(json.dumps(ANSWER))
        return ""

    monkeypatch.setattr(questions, "_run", run)
    settings = Settings(home=tmp_path)
    assert bench.run_bench("residual", settings, quick) == ANSWER
    assert asked[0][:5] == ["-m", "workers.bench", "residual", "--models", str(settings.models_dir)]
    assert ("--quick" in asked[0]) == quick


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    answer = dict(ANSWER)
    monkeypatch.setattr(questions, "bench", lambda settings, name, quick, deep: json.dumps(answer))
    return answer


@pytest.mark.parametrize(("figure", "said"), [(0.25, "the goal of 0.3 is not reached"), (0.3, "0.3 is reached")])
def test_the_command_shows_and_writes(answered: dict[str, Any], tmp_path: Path, figure: float, said: str) -> None:
    answered["figure"] = figure
    done = CliRunner().invoke(cli.app, ["bench", "residual", "--json", str(tmp_path / "bench.json")])
    assert done.exit_code == 0
    assert said in done.output
    # Two tables: rows of the same columns stand together.
    assert done.output.count("what") == 2
    assert all(word in done.output for word in ("float32", "bfloat16", "4096"))
    assert json.loads((tmp_path / "bench.json").read_text()) == answered


@pytest.mark.parametrize(
    ("figure", "goal", "said"),
    [
        (0.7, 0.8, "; the goal of at most 0.8 is reached"),
        (0.9, 0.8, "; the goal of at most 0.8 is not reached"),
        (0.9, None, " (less is better)"),
    ],
)
def test_less_may_be_better_and_nothing_owed(
    answered: dict[str, Any], figure: float, goal: float | None, said: str
) -> None:
    answered |= {"figure": figure, "goal": goal, "better": LESS, "unit": "of it", "notes": ["Where the rest goes."]}
    done = CliRunner().invoke(cli.app, ["bench", "residual"])
    assert f"{figure} of it{said}\nWhere the rest goes.\n" in done.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["startup", "--quick"],
            "--quick is for residual and fallback and full-graph and dispatch and reads and regression and pages; "
            "leave it out for startup",
        ),
        (["full-graph", "--deep"], "--deep is for fallback; leave it out for full-graph"),
        (["residual", "--repeats", "2"], "--repeats is for startup; leave it out for residual"),
    ],
)
def test_an_option_that_a_bench_has_not_is_refused(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(cli.app, ["bench", *arguments])
    assert isinstance(done.exception, cli.Refused)
    assert str(done.exception) == said


def test_all_that_can_be_measured_is() -> None:
    assert set(__main__.MEASURES) == set(NAMES) < set(bench.NAMES)


def test_another_name_is_refused() -> None:
    done = CliRunner().invoke(cli.app, ["bench", "residuals"])
    assert isinstance(done.exception, cli.Refused)
    assert str(done.exception) == f"there is no benchmark 'residuals'; choose {' or '.join(bench.NAMES)}"


@pytest.mark.slow
def test_a_benchmark_ends_with_the_command_that_asked_for_it(tmp_path: Path) -> None:
    """It would go on for minutes, and start engines."""
    command = [sys.executable, "-m", "service.launch", "bench", "residual", "--json", str(tmp_path / "found.json")]
    environment = os.environ | {"SHARDPROOF_HOME": str(tmp_path)}
    asking = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    measuring: list[psutil.Process] = []
    deadline = time.monotonic() + 60
    while not measuring and time.monotonic() < deadline:
        children = psutil.Process(asking.pid).children()
        measuring = [child for child in children if "workers.bench" in child.cmdline()]
    assert measuring, "it was not started"
    asking.kill()
    asking.wait()
    assert psutil.wait_procs(measuring, timeout=10)[1] == []
