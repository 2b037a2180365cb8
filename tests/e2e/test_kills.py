"""Whatever is killed, the sweep goes on; the finding says what died, or another run is made; and nothing is left."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from e2e.command import Finished, engine_processes, finish, start

pytestmark = pytest.mark.engine

MATRIX = """
name: kills
engine:
  model: tiny:llama
  dtype: float32
  tensor_parallel_size: 2
  enforce_eager: true
  env.TORCHDYNAMO_DISABLE: "1"
checks: [outputs]
matrix:
  env.VICTIM: [rank, engine, actor, nobody]
"""
PATIENCE_S = 180.0


def _cmdline(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _victim_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get("VICTIM")
    except psutil.Error:
        return None


def _engine(victim: str) -> psutil.Process | None:
    """The main process of the engine of cell ``victim``."""
    for process in engine_processes():
        line = _cmdline(process)
        if "workers.engine run" in line and "workers.supervisor" not in line and _victim_of(process) == victim:
            return process
    return None


def _rank_1(victim: str) -> psutil.Process | None:
    engine = _engine(victim)
    children = engine.children(recursive=True) if engine else []
    return next((child for child in children if "VLLM::Worker_TP1" in _cmdline(child)), None)


def _actor(victim: str) -> psutil.Process | None:
    engine = _engine(victim)
    supervisor = engine.parent() if engine else None
    return supervisor.parent() if supervisor else None


TARGETS: dict[str, Callable[[str], psutil.Process | None]] = {"rank": _rank_1, "engine": _engine, "actor": _actor}


def _kill_each_once(command: subprocess.Popen[str]) -> None:
    """Cells run in the order in which Ray finds them a place."""
    waiting = set(TARGETS)
    deadline = time.monotonic() + PATIENCE_S
    while waiting and time.monotonic() < deadline and command.poll() is None:
        for victim in sorted(waiting):
            process = TARGETS[victim](victim)
            if process is not None:
                process.kill()
                waiting.remove(victim)
        time.sleep(0.1)
    assert not waiting, f"never there to be killed: {waiting}"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kills")


@pytest.fixture(scope="module")
def survived(home: Path) -> Finished:
    matrix, report = home / "kills.yaml", home / "report.json"
    matrix.write_text(MATRIX)
    command = start(home, "run", matrix, "--json", report)
    _kill_each_once(command)
    return finish(command, home, report)


def test_the_sweep_goes_on(survived: Finished) -> None:
    assert survived.report is not None, survived.printed
    verdicts = [cell["verdict"] for cell in survived.report["cells"]]
    # A dead engine is a finding. A dead actor is nobody's fault: the cell is run once more.
    assert verdicts == ["crashed", "crashed", "pass", "pass"], survived.printed
    assert survived.status == 1


def test_a_dead_rank_is_named_with_its_phase_and_log(survived: Finished) -> None:
    (reason,) = [text for text in survived.cell("VICTIM=rank")["reasons"] if text.startswith("crashed")]
    assert "rank 1" in reason
    assert "phase unknown" not in reason
    assert "Last line of its log:" in reason
    assert "resource_tracker" not in reason
    (arm,) = [arm for arm in survived.cell("VICTIM=rank")["arms"] if arm["outcome"] == "crashed"]
    assert arm["failure"]["rank"] == 1
    assert arm["failure"]["log_tail"]


def test_a_dead_engine_and_a_dead_actor_are_told_apart(survived: Finished) -> None:
    engine = survived.cell("VICTIM=engine")["reasons"][0]
    assert "main process" in engine
    assert survived.printed.count("run-lost the actor of run") == 1
    assert survived.report is not None
    # The engines of these cells are shared arms, and each attempt at one has a folder of its own.
    arms = (survived.home / "artifacts" / survived.report["sweep"]["id"] / "arms").iterdir()
    assert len([folder for folder in arms if folder.name.endswith("-2")]) == 1
