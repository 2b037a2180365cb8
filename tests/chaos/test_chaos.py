"""What drives sweeps is killed at random, and every cell ends, no result is lost or doubled, and no process is left.

Twenty kills; ``make chaos`` makes two hundred over three hundred cells. What is counted is what the database says once
the last sweep has ended, see ``chaos.count``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chaos.__main__ import DECK
from chaos.count import Counted, count
from service.recordings import recorded
from service.settings import Settings
from service.store import open_store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

KILLS = int(os.environ.get("CHAOS_KILLS", "20"))
CELLS = int(os.environ.get("CHAOS_CELLS", "20"))
SEED = int(os.environ.get("CHAOS_SEED", "5"))
ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Outcome:
    """``told``: what the harness did. ``counted``: what the store says."""

    told: dict[str, Any]
    counted: Counted

    def killed(self, kind: str) -> int:
        return sum(kill["kind"] == kind for kill in self.told["killed"])


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    """Temporary folder of everything here. Short: Ray puts sockets below it."""
    folder = Path(tempfile.mkdtemp(prefix="sp-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def outcome(scratch: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    home = tmp_path_factory.mktemp("chaos")
    reply = home / "reply.json"
    asked = {"seed": SEED, "kills": KILLS, "cells": CELLS, "home": home, "recording": recorded(), "reply": reply}
    harness = [sys.executable, "-m", "chaos", *(f"--{name}={value}" for name, value in asked.items())]
    paths = f"{ROOT / 'tests'}:{ROOT}"
    variables = {"TMPDIR": str(scratch), "PYTHONPATH": paths, "RAY_USAGE_STATS_ENABLED": "0"}
    lifeline, mine = os.pipe()
    # Whatever happens to the harness, nothing of it stays.
    command = [sys.executable, "-m", "workers.supervisor", str(lifeline), *harness]
    with (home / "harness.log").open("w") as log:
        status = subprocess.run(
            command, env=os.environ | variables, stdout=log, stderr=log, pass_fds=(lifeline,), check=False
        ).returncode
    for descriptor in (lifeline, mine):
        os.close(descriptor)
    assert status == 0, (home / "harness.log").read_text()[-5000:]
    told = json.loads(reply.read_text())
    store = open_store(Settings(home=home, database_url=None).store_url)
    with store.reading() as session:
        counted = count(session, told["sweeps"])
    store.close()
    print(f"{told['seconds']:.0f} s, {dict(counted.cells)}, {dict(counted.verdicts)}, attempts {counted.attempts}")
    return Outcome(told, counted)


def test_what_was_to_be_killed_was(outcome: Outcome) -> None:
    kinds = Counter(kill["kind"] for kill in outcome.told["killed"])
    assert kinds.total() == KILLS
    assert kinds.keys() == set(DECK)
    assert len({kill["pid"] for kill in outcome.told["killed"]}) == KILLS, "none was killed twice"


def test_every_cell_ends(outcome: Outcome) -> None:
    assert outcome.counted.cells.total() == sum(outcome.told["sweeps"].values()) >= CELLS
    assert "None" not in outcome.counted.verdicts


def test_no_result_is_lost_or_doubled(outcome: Outcome) -> None:
    assert outcome.counted.problems == []


def test_a_controller_ends_only_when_it_is_killed(outcome: Outcome) -> None:
    assert outcome.told["unasked"] == []


def test_only_what_was_hit_is_worse_for_it(outcome: Outcome) -> None:
    assert set(outcome.counted.verdicts) <= {"pass", "crashed"}
    assert outcome.counted.cells["failed"] <= outcome.killed("engine")
    assert outcome.counted.verdicts["pass"] > 0


def test_no_process_is_left(outcome: Outcome) -> None:
    assert outcome.told["left"] == []
