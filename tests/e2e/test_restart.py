"""The controller is killed in the middle of the quickstart sweep; the next one brings it to the same report.

A page is watched from there to the verdicts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from browser.chromium import chromium
from browser.visit import Visit, open_visit
from playwright.sync_api import expect

from e2e.command import Finished, own_processes
from e2e.served import Served, serving
from e2e.watched import SEEN, open_sweep, seen
from service.matrices import quickstart

pytestmark = pytest.mark.engine

PATIENCE_S = 900.0
POLL_S = 0.5

TOLD_APART = frozenset(
    {
        # When, how long, how much of it, and under which name it was stored.
        *("id", "created_at", "started_at", "ended_at", "wall_s", "peak_rss_bytes", "stacks", "log_tail"),
        # Of every phase and start; which small phases there are hangs on how long they took.
        *("ranks", "phases", "starts", "repeats", "total_s", "median_s", "min_s", "max_s", "skew", "artifacts"),
        *("first_token_s", "time_to_first_token_s", "peak", "slow_path_s", "arms", "processes", "resources"),
        # Compiled code holds the name of the folder it was made in; a controller has no file of the matrix.
        *("artifact_bytes", "reproduce"),
    }
)
"""What two undisturbed runs tell apart too."""

NEVER_WRITTEN = frozenset(
    {"confusion", "scores", "records", "worst_score", "pattern", "score", "sentence", "reasons", "invariants"}
)
"""Of a cell with vLLM's guard taken away: what unwritten memory makes. Verdict and first wrong place stay."""


@dataclass(frozen=True)
class Restarted:
    """``served``: the controller after the one that was killed. ``report`` and the page of ``visit``: at the end."""

    served: Served
    report: dict[str, Any]
    visit: Visit


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> Iterator[Restarted]:
    home: Path = tmp_path_factory.mktemp("restart")
    with serving(home) as first:
        sweep_id = _submit(first)
        _wait(lambda: _running(first, sweep_id), "no run of a cell began")
        _controller(home).kill()
    with serving(home) as second, chromium() as browser:
        visit = open_visit(browser, second.url)
        open_sweep(visit, sweep_id, pictures / "live-sweep.png")
        # What the page asks for meanwhile goes through this process.
        _wait(
            lambda: second.report(sweep_id)["sweep"]["ended_at"] is not None,
            "the sweep did not end",
            lambda: visit.page.wait_for_timeout(1000 * POLL_S),
        )
        yield Restarted(second, second.report(sweep_id), visit)
        visit.leave()


def _submit(served: Served) -> str:
    answer = httpx.post(
        f"{served.url}/v1/sweeps",
        content=quickstart().read_bytes(),
        headers={"content-type": "application/yaml"},
        timeout=300,
    )
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def _running(served: Served, sweep_id: str) -> bool:
    """A cell has an arm at work: its shared arms have run, it has not."""
    cells = served.report(sweep_id)["cells"]
    assert not all(cell["ended_at"] for cell in cells), "it ended before it could be disturbed"
    return any(cell["state"] == "running" for cell in cells)


def _wait(until: Callable[[], bool], complaint: str, pause: Callable[[], None] = lambda: time.sleep(POLL_S)) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not until():
        assert time.monotonic() < deadline, complaint
        pause()


def _controller(home: Path) -> psutil.Process:
    def serves(process: psutil.Process) -> Iterator[bool]:
        line = process.cmdline()
        yield line[-2:] == ["service.launch", "serve"] and "workers.supervisor" not in line
        yield process.environ().get("SHARDPROOF_HOME") == str(home)

    (found,) = (process for process in own_processes() if all(serves(process)))
    return found


def _without_times(reasons: list[str]) -> list[str]:
    return [text for text in reasons if not text.startswith(("note: cold start", "note: warm start"))]


def differences(one: Any, other: Any, where: str = "report", apart: frozenset[str] = TOLD_APART) -> Iterator[str]:
    """Where two reports differ in more than what time, place and chance decide."""
    if where.endswith(".reasons"):
        one, other = (_without_times(reasons) for reasons in (one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        broken = one.get("verdict") == other.get("verdict") == "fail-residual"
        apart |= NEVER_WRITTEN if broken else frozenset()
        for key in sorted((one.keys() | other.keys()) - apart):
            yield from differences(one.get(key), other.get(key), f"{where}.{key}", apart)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, f"{where}[{number}]", apart)
    elif one != other:
        yield f"{where}: {one!r} and {other!r}"


def test_the_report_is_that_of_an_undisturbed_sweep(restarted: Restarted, demo: Finished) -> None:
    assert list(differences(restarted.report, demo.report)) == []


def test_a_report_that_differs_is_not_taken_for_the_same(demo: Finished) -> None:
    """Else nothing was compared."""
    assert demo.report is not None
    (cell, *others) = demo.report["cells"]
    for change in ({"verdict": "crashed"}, {"effective": {}}, {"residual": None}, {"reasons": ["another"]}):
        (key,) = change
        changed = demo.report | {"cells": [cell | change, *others]}
        assert [
            found.partition(":")[0].startswith(f"report.cells[0].{key}") for found in differences(changed, demo.report)
        ]


def test_no_run_counts_twice(restarted: Restarted) -> None:
    """What was at work was run again; of all that was begun twice one came to its end."""
    sweep = restarted.served.home / "artifacts" / restarted.report["sweep"]["id"]
    attempts = [list(cell.iterdir()) for cell in (sweep / "cells").iterdir()]
    assert max(map(len, attempts)) == 2
    arms: dict[str, list[Path]] = {}
    for folder in (sweep / "arms").iterdir():
        arms.setdefault(folder.name.partition("-")[0], []).append(folder)
    assert [key for key, folders in arms.items() if sum((path / "result.json").exists() for path in folders) != 1] == []


def test_its_page_shows_phases_as_they_run_and_then_the_verdicts(restarted: Restarted, pictures: Path) -> None:
    visit, page = restarted.visit, restarted.visit.page
    shown = page.locator("#live")
    expect(page.locator("#live [data-ended]")).to_have_count(1)
    assert page.evaluate("window.untouched"), "it was not loaded anew"
    assert seen(visit) >= SEEN
    expect(shown).to_contain_text("4 of 4 cells ended: 4 ok, 0 unexpected")
    visit.shoot(pictures / "live-sweep-ended.png")
    cells = {cell["name"]: cell for cell in restarted.report["cells"]}
    timed = cells["sp-full-graph"]["compile"]["cold"]["total_s"]
    for name, shown_as in (("sp-full-graph", f"{timed:.1f}"), ("sp-guard-removed", "fail-residual")):
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True)).last
        expect(row).to_contain_text(shown_as)
    page.get_by_role("link", name="sp-guard-removed", exact=True).last.click()
    expect(page.get_by_text(cells["sp-guard-removed"]["reasons"][0].partition(": ")[2][:80]).first).to_be_visible()
    visit.shoot(pictures / "live-cell.png")
    visit.check_accessible()
    visit.check_quiet()
