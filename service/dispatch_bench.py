"""``shardproof bench dispatch``: cells per second through the whole controller, with the null engine for engines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from service.domain.startup import NotMeasured
from service.recordings import recorded
from service.settings import Settings
from workers import environment
from workers.bench import MORE

NAME = "dispatch"
CELLS, QUICK_CELLS = 10_000, 100
AT_ONCE = 1_000_000.0
"""How many times as fast as it was recorded a run is emitted: as fast as it can be written."""

MIB = 2**20
TAIL = 40


def dispatch(settings: Settings, quick: bool) -> dict[str, Any]:
    """Drive a sweep of 10,000 cells, of 100 when ``quick``. Half a second of CPU time for each, or less.

    Raises:
        NotMeasured: when a cell did not pass.
    """
    cells = QUICK_CELLS if quick else CELLS
    settings.home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dispatch-", dir=settings.home) as name:
        return measured(_load(Path(name), settings, cells), cells)


def measured(told: dict[str, Any], cells: int) -> dict[str, Any]:
    """``told``: what ``service.dispatch_load`` found of its sweep of so many ``cells``.

    Raises:
        NotMeasured: when one of them did not pass.
    """
    if told["by_verdict"] != {"pass": cells}:
        raise NotMeasured(f"not every cell of {cells} passed: {told['by_verdict']}")
    samples, lags = told["samples"], told["lags_ms"]
    begin, end = samples[0], samples[-1]
    return {
        "name": NAME,
        "figure": round((end["cells"] - begin["cells"]) / (end["s"] - begin["s"]), 3),
        "unit": "cells/s",
        "goal": None,
        "better": MORE,
        "rows": [*_stretches(samples), _events(lags)],
        "notes": [
            f"{cells} cells of two engine starts each, accepted in {told['accepted_s']:.1f} s",
            f"no engine ran: a recorded run was emitted in its place, as fast as it can be written, in {told['slots']} "
            f"slots on {os.cpu_count()} cores, which nothing is computed on",
            f"the controller's memory after the first tenth and at the end: "
            f"{samples[1]['rss_bytes'] / MIB:.0f} and {end['rss_bytes'] / MIB:.0f} MiB",
        ],
        "environment": told["environment"] | {"threads": 1},
    }


def _stretches(samples: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """From each sample to the next: about a tenth of the cells."""
    return [
        {
            "to_cell": after["cells"],
            "cells_s": round((after["cells"] - before["cells"]) / (after["s"] - before["s"]), 3),
            "controller_cpu_ms_per_cell": round(
                (after["cpu_s"] - before["cpu_s"]) / (after["cells"] - before["cells"]) * 1000, 2
            ),
            "controller_rss_mib": round(after["rss_bytes"] / MIB, 1),
        }
        for before, after in pairwise(samples)
    ]


def _events(lags: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """From an event's own time to the commit that stored it, in milliseconds."""
    return {
        "events": sum(times for _, times in lags),
        "lag_p50_ms": percentile(lags, 0.5),
        "lag_p99_ms": percentile(lags, 0.99),
        "lag_max_ms": lags[-1][0],
    }


def percentile(counted: Sequence[tuple[int, int]], part: float) -> int:
    """The least value that ``part`` of all do not exceed. ``counted``: values with their numbers, sorted, not empty."""
    wanted = part * sum(times for _, times in counted)
    reached = 0
    for value, times in counted:
        reached += times
        if reached >= wanted:
            return value
    return counted[-1][0]


def _load(folder: Path, settings: Settings, cells: int) -> dict[str, Any]:
    """Run the controller under a supervisor: its whole tree ends with it, or with this process."""
    reply = folder / "reply.json"
    own = {
        "SHARDPROOF_HOME": str(folder / "home"),
        "SHARDPROOF_PYTHON": str(settings.python),
        "SHARDPROOF_MAX_CELLS": str(cells),
        "SHARDPROOF_NULL_ENGINE": str(settings.null_engine or recorded()),
        "SHARDPROOF_NULL_ENGINE_SPEED": str(AT_ONCE),
    }
    load = [sys.executable, "-m", "service.dispatch_load", "--cells", str(cells), "--reply", str(reply)]
    lifeline, mine = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "workers.supervisor", str(lifeline), *load],
            env=environment.clean() | own,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=(lifeline,),
            start_new_session=True,
            check=False,
        )
    finally:
        os.close(lifeline)
        os.close(mine)
    if done.returncode:
        last = "\n".join(done.stdout.splitlines()[-TAIL:])
        raise NotMeasured(f"the controller ended with status {done.returncode}:\n{last}")
    return dict(json.loads(reply.read_text()))
