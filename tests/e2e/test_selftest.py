"""The residual check against known faults in a running engine: every kind once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from e2e.command import finish, start
from workers.selftest.catalogue import HEALTHY_QUICK, catalogue

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home: Path = tmp_path_factory.mktemp("selftest")
    report = home / "selftest.json"
    finished = finish(start(home, "selftest", "--quick", "--json", report), home, report)
    assert finished.status == 0, finished.printed
    return json.loads(report.read_text())


def test_every_kind_of_fault_is_found(result: dict[str, Any]) -> None:
    missed = [row for row in result["rows"] if not row["found"]]
    assert missed == []
    assert result["found"] == result["faults"] == len(catalogue(quick=True)) >= 16


def test_every_fault_is_placed_at_its_site_and_rank(result: dict[str, Any]) -> None:
    assert [row for row in result["rows"] if not row["placed"]] == []


def test_healthy_runs_raise_no_alarm(result: dict[str, Any]) -> None:
    assert (result["healthy"], result["false_alarms"]) == (HEALTHY_QUICK, 0)
