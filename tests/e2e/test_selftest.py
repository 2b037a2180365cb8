"""The checker against known faults in running engines: once every kind that two ranks and two engines can show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from e2e.command import finish, start
from workers.protocol import INVARIANTS
from workers.selftest.catalogue import HEALTHY_QUICK, RESIDUAL, catalogue

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


def test_every_fault_is_found_at_its_place_by_the_check_that_is_for_it(result: dict[str, Any]) -> None:
    assert [row for row in result["rows"] if not row["placed"]] == []
    assert all(row["check"] in row["found_by"] for row in result["rows"])


def test_the_comparison_alone_does_not_find_them_all(result: dict[str, Any]) -> None:
    """Faults that leave every residual as it is: what the invariants are for."""
    unseen = {row["kind"] for row in result["rows"] if RESIDUAL not in row["found_by"]}
    assert unseen >= {"belief-inverted", "norm-not-rewritten", "threshold-ignored"}


def test_every_check_finds_something(result: dict[str, Any]) -> None:
    """But for what crosses between pipeline stages, which takes an engine of its own."""
    found = {check for row in result["rows"] for check in row["found_by"]}
    assert found == {RESIDUAL, *INVARIANTS} - {"boundary"}


def test_healthy_runs_raise_no_alarm(result: dict[str, Any]) -> None:
    assert result["alarms"] == []
    assert (result["healthy"], result["false_alarms"]) == (HEALTHY_QUICK, 0)
