"""One controller, one sweep after the other: nothing of any of them stays but what it is kept for.

``make soak`` runs twenty.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.command import Leftovers
from e2e.served import Served, serving

pytestmark = [pytest.mark.engine, pytest.mark.timeout(3600)]

RUNS = int(os.environ.get("SOAK_RUNS", "2"))
KEPT = 1

MATRIX = """
name: soak
engine:
  model: tiny:llama
  dtype: float32
  tensor_parallel_size: 2
  enforce_eager: true
  env.TORCHDYNAMO_DISABLE: "1"
  batch.waves: [[3]]
checks: [outputs]
matrix: {seed: [0]}
"""


@pytest.fixture(scope="module")
def before() -> Leftovers:
    return Leftovers.now()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, before: Leftovers) -> Iterator[Served]:
    home: Path = tmp_path_factory.mktemp("soak")
    with serving(home, SHARDPROOF_RETENTION_SWEEPS=str(KEPT)) as served:
        yield served
    after = Leftovers.now()
    assert after.processes <= before.processes, "the command takes everything with it"
    assert after.files <= before.files


@pytest.fixture(scope="module")
def reports(served: Served) -> list[dict[str, Any]]:
    return [served.sweep(MATRIX) for _ in range(RUNS)]


def test_every_run_is_a_whole_one(reports: list[dict[str, Any]]) -> None:
    assert len(reports) >= 2
    for report in reports:
        (cell,) = report["cells"]
        assert (cell["verdict"], cell["outputs"]["class"]) == ("pass", "identical"), cell["reasons"]


def test_the_last_run_leaves_no_more_than_the_first(served: Served, reports: list[dict[str, Any]]) -> None:
    """Processes, descriptors of those that stay, shared memory, temporary folders, caches."""
    first, *others = served.left
    assert [left.beyond(first) for left in others] == [{}] * len(others)
    assert first.caches == frozenset()


def test_files_of_the_newest_sweeps_alone_are_kept(served: Served, reports: list[dict[str, Any]]) -> None:
    ids = [report["sweep"]["id"] for report in reports]
    assert sorted(path.name for path in (served.home / "artifacts").iterdir()) == ids[-KEPT:]
    now = [served.report(sweep_id) for sweep_id in ids]
    assert [report["sweep"]["artifacts_removed_at"] is None for report in now] == [False] * (RUNS - KEPT) + [
        True
    ] * KEPT
    assert [report["cells"][0]["verdict"] for report in now] == ["pass"] * RUNS, "results stay"
