"""``shardproof bench reads``: what it asks and what it writes. Never how fast anything is."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from api.client import StoringController

from service import bench, reads
from service.app import create_app
from service.domain.keys import Scope
from service.domain.startup import NotMeasured
from service.keyring import Keyring
from service.reads.load import LEAST, WHOLE
from service.reads.measure import Times, measure
from service.reads.questions import Asked
from service.reads.shape import Shape
from service.settings import Settings
from service.store import open_store
from workers.protocol import Evidence


def test_a_shape_has_the_runs_that_were_asked_for() -> None:
    sweeps = list(Shape(runs=20_000).sweeps())
    assert abs(sum(len(sweep.cells) * sweep.attempts for sweep in sweeps) - 20_000) < 100
    assert [sweep.id for sweep in sweeps] == sorted({sweep.id for sweep in sweeps})
    assert [len(sweep.cells) for sweep in sweeps if sweep.whole and not sweep.active].count(Shape.SMALL) == 20
    assert [sweep.active for sweep in sweeps].count(True) == 1


def test_evidence_is_whole_and_of_the_size_that_runs_leave() -> None:
    assert Evidence.model_validate_json(LEAST).compile.cold is None
    found = Evidence.model_validate_json(WHOLE)
    assert found.compile.cold is not None
    assert 80_000 < len(WHOLE) < 160_000


def test_a_question_names_a_cell_or_run_of_its_sweep() -> None:
    sweep = next(Shape(runs=100, small=0, large=0).sweeps())
    path = Asked("/v1/{sweep_id}/{cell_id}/{run_id}", ("sweep_id", "cell_id", "run_id")).of(sweep, random.Random(1))
    _, _, sweep_id, cell_id, run_id = path.split("/")
    assert (cell_id, run_id) in {(cell, run) for cell, _, run in sweep.runs()}
    assert sweep_id == sweep.id


def test_times_are_summed_up_in_milliseconds() -> None:
    row = Times("list", [0.001 * number for number in range(1, 101)], [2000] * 100).row("SQLite")
    assert (row["answers"], row["p50_ms"], row["p99_ms"], row["kb"]) == (100, 50.5, 100.0, 2.0)


def test_an_answer_that_is_an_error_is_not_timed(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 's.db'}")
    app = create_app(Settings(), store, StoringController(store))
    _, key = Keyring(store).create("reads", Scope.ADMIN, None, "test")
    with pytest.raises(NotMeasured, match="404"):
        asyncio.run(measure(app, Shape(runs=100), 1, key))
    store.close()


@pytest.mark.slow
def test_every_list_and_reports_are_timed_on_both_databases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "QUICK_RUNS", 3000)
    monkeypatch.setattr(reads, "QUICK_TIMES", 4)
    result = bench.run_bench("reads", Settings(), quick=True)
    asked = {database: [row["what"] for row in result["rows"] if row["database"] == database]
             for database in ("SQLite", "PostgreSQL")}  # fmt: skip
    assert asked["SQLite"] == asked["PostgreSQL"]
    assert {"/v1/sweeps", "/v1/sweeps/{sweep_id}/events", "/v1/sweeps/{sweep_id}"} <= set(asked["SQLite"])
    assert {"/v1/series", "/v1/series/{series_id}/points", "/v1/notices", "/v1/audit"} <= set(asked["SQLite"])
    # No file was made for any run. A list of nothing has a time, and no figure.
    assert "/v1/runs/{run_id}/artifacts" not in asked["SQLite"]
    assert any("nothing was there to list: /v1/runs/{run_id}/artifacts" in note for note in result["notes"])
    assert len([what for what in asked["SQLite"] if "report" in what]) == 2
    assert all(row["answers"] == 4 and 0 < row["p50_ms"] <= row["p99_ms"] and row["kb"] >= 0 for row in result["rows"])
    assert result["figure"] == max(row["p99_ms"] for row in result["rows"])
    assert (result["name"], result["goal"], result["better"]) == ("reads", 50.0, "less")


@pytest.mark.slow
def test_where_no_server_is_installed_sqlite_is_measured_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "QUICK_RUNS", 3000)
    monkeypatch.setattr(reads, "QUICK_TIMES", 1)
    monkeypatch.setattr("service.store.local_postgres.PACKAGE", "no_such_package")
    result = bench.run_bench("reads", Settings(), quick=True)
    assert {row["database"] for row in result["rows"]} == {"SQLite"}
    assert any("PostgreSQL was left out" in note and "shardproof[postgres]" in note for note in result["notes"])
