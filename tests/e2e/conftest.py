"""One run of the quickstart matrix serves many tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.command import Finished, Leftovers, finish, start


@pytest.fixture(scope="session")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, Leftovers, Leftovers]:
    """``shardproof demo``, with what was on the machine before and after it."""
    home: Path = tmp_path_factory.mktemp("quickstart")
    before = Leftovers.now()
    report = home / "report.json"
    finished = finish(start(home, "demo", "--json", report), home, report)
    return finished, before, Leftovers.now()


@pytest.fixture(scope="session")
def demo(quickstart: tuple[Finished, Leftovers, Leftovers]) -> Finished:
    return quickstart[0]
