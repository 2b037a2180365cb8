"""What was killed leaves nothing that the next one minds, and of one sweep after the other nothing stays but its files.

``make soak`` makes twenty runs, all in one controller.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from e2e.command import Leftovers, start
from e2e.served import Served, not_to_stay, serving

pytestmark = [pytest.mark.engine, pytest.mark.timeout(3600)]

SWEEPS = 2
CELLS = int(os.environ.get("SOAK_RUNS", "2")) // SWEEPS
KEPT = 1
PATIENCE_S = 180.0

MATRIX = """
name: soak
engine:
  model: tiny:llama
  dtype: float32
  tensor_parallel_size: 2
  enforce_eager: true
  batch.waves: [[3]]
checks: [outputs]
# Means nothing where there are no CUDA graphs, and to the reference: all cells share one.
matrix: {compilation_config.cudagraph_num_of_warmups: NUMBERS}
""".replace("NUMBERS", str(list(range(CELLS))))


@pytest.fixture(scope="module")
def before() -> Leftovers:
    return Leftovers.now()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("soak")


@pytest.fixture(scope="module")
def killed(home: Path, before: Leftovers) -> list[psutil.Process]:
    """``shardproof run``, killed as soon as a rank of an engine is there: what then still runs of it."""
    matrix = home / "soak.yaml"
    matrix.write_text(MATRIX)
    command = start(home, "run", matrix)
    deadline = time.monotonic() + PATIENCE_S
    while not any("VLLM::" in line for line in _theirs(command).values()):
        assert time.monotonic() < deadline
        assert command.poll() is None
        time.sleep(0.1)
    theirs = _theirs(command)
    command.kill()
    command.communicate()
    _, alive = psutil.wait_procs(theirs, timeout=10)
    return alive


def _theirs(command: subprocess.Popen[str]) -> dict[psutil.Process, str]:
    """Every process below ``command`` with its command line."""
    found = {}
    for process in psutil.Process(command.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            found[process] = " ".join(process.cmdline())
    return found


@pytest.fixture(scope="module")
def served(home: Path, killed: list[psutil.Process], before: Leftovers) -> Iterator[Served]:
    """The next controller in the same home."""
    with serving(home, SHARDPROOF_RETENTION_SWEEPS=str(KEPT)) as served:
        yield served
    after = Leftovers.now()
    assert after.processes <= before.processes, "the command takes everything with it"
    assert after.files <= before.files


@pytest.fixture(scope="module")
def reports(served: Served) -> list[dict[str, Any]]:
    return [served.sweep(MATRIX) for _ in range(SWEEPS)]


def test_kill_of_the_command_leaves_no_process(killed: list[psutil.Process]) -> None:
    assert killed == []


def test_the_sweep_of_a_killed_command_is_concluded_and_its_caches_are_gone(served: Served) -> None:
    """By the next one, before it has done anything else. The newest sweep keeps its files."""
    (folder,) = (served.home / "artifacts").iterdir()
    report = served.report(folder.name)
    assert report["cells"][0]["verdict"] == "crashed"
    assert "the controller that drove this sweep ended" in report["cells"][0]["reasons"][0]
    assert list(folder.glob("arms/*/engine.log"))
    assert list(not_to_stay(served.home)) == []


def test_every_run_is_a_whole_one(reports: list[dict[str, Any]]) -> None:
    cells = [cell for report in reports for cell in report["cells"]]
    assert len(cells) == SWEEPS * CELLS >= 2
    for cell in cells:
        assert (cell["verdict"], cell["outputs"]["class"]) == ("pass", "identical"), cell["reasons"]


def test_the_last_sweep_leaves_no_more_than_the_first(served: Served, reports: list[dict[str, Any]]) -> None:
    """Processes, descriptors of those that stay, shared memory, temporary folders, caches."""
    first, last = served.left
    assert last.beyond(first) == {}
    assert first.caches == frozenset()


def test_files_of_the_newest_sweeps_alone_are_kept(served: Served, reports: list[dict[str, Any]]) -> None:
    ids = [report["sweep"]["id"] for report in reports]
    assert [path.name for path in (served.home / "artifacts").iterdir()] == ids[-KEPT:]
    now = [served.report(sweep_id) for sweep_id in ids]
    kept = [report["sweep"]["artifacts_removed_at"] is None for report in now]
    assert kept == [False] * (SWEEPS - KEPT) + [True] * KEPT
    assert [report["summary"]["by_verdict"] for report in now] == [{"pass": CELLS}] * SWEEPS, "results stay"
