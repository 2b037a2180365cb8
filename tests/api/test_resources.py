"""Cells and runs as resources."""

from __future__ import annotations

import math
from typing import Any

import pytest
from store.samples import SWEEP, add_sweep, advance, divergence, evidence, finish, residual, run_spec, times

from api.client import Client
from api.test_problems import assert_problem
from service.domain.cursor import encode
from service.domain.lifecycle import State
from service.store import Store, repositories
from service.store.records import NewEvent
from workers.protocol import Compile, Role, TimedStart


def pages(client: Client, path: str, name: str) -> list[dict[str, Any]]:
    """Every item of a list, two on a page."""
    found: list[dict[str, Any]] = []
    after = ""
    while True:
        page = client.get(f"{path}?limit=2{after}").json()
        assert len(page[name]) <= 2
        found += page[name]
        if page["next"] is None:
            return found
        after = f"&after={page['next']}"


def add_runs(store: Store, cell_id: str, *run_ids: str) -> None:
    with store.transaction() as session:
        for run_id in run_ids:
            repositories.create_run(session, SWEEP, cell_id, run_spec(run_id, cell_id))


def test_cells_are_listed_page_by_page(client: Client, store: Store) -> None:
    ids = add_sweep(store, cells=5)
    advance(store, "c3", State.QUEUED, State.LEASED, State.RUNNING)
    found = pages(client, f"/v1/sweeps/{SWEEP}/cells", "cells")
    assert [cell["id"] for cell in found] == ids
    assert [cell["state"] for cell in found] == ["auditing"] * 3 + ["running", "auditing"]
    assert found[0].keys() == {
        "id", "position", "name", "state", "verdict", "ok", "duplicate_of", "started_at", "ended_at"
    }  # fmt: skip


def test_a_full_last_page_has_no_next(client: Client, store: Store) -> None:
    add_sweep(store, cells=2)
    assert client.get(f"/v1/sweeps/{SWEEP}/cells?limit=2").json()["next"] is None


def test_runs_are_listed_page_by_page(client: Client, store: Store) -> None:
    add_sweep(store, cells=2)
    add_runs(store, "c1", "z", "y", "x")
    add_runs(store, "c0", "w")
    found = pages(client, f"/v1/sweeps/{SWEEP}/runs", "runs")
    assert [(run["id"], run["attempt"]) for run in found] == [("w", 1), ("z", 1), ("y", 2), ("x", 3)]
    assert not {"evidence", "spec"} & found[0].keys()
    assert [run["id"] for run in pages(client, f"/v1/cells/{SWEEP}/c1/runs", "runs")] == ["z", "y", "x"]


def test_a_cell_is_as_in_the_report_with_the_run_that_its_result_is_of(client: Client, store: Store) -> None:
    add_sweep(store)
    finish(store, "c0", evidence())
    with store.transaction() as session:
        repositories.set_duplicate(session, SWEEP, "c1", "c0")
    report = client.get(f"/v1/sweeps/{SWEEP}/report").json()
    for place, cell_id in enumerate(("c0", "c1")):
        found = client.get(f"/v1/cells/{SWEEP}/{cell_id}").json()
        assert (found.pop("sweep"), found.pop("run")) == (SWEEP, "run-1")
        assert found == report["cells"][place]
    assert found["compile"]["cold"]["total_s"] == 20.0


def test_a_cell_without_a_run(client: Client, store: Store) -> None:
    add_sweep(store)
    found = client.get(f"/v1/cells/{SWEEP}/c1").json()
    assert (found["run"], found["verdict"], found["residual"]) == (None, None, None)
    assert client.get(f"/v1/cells/{SWEEP}/c1/runs").json() == {"runs": [], "next": None}


def test_a_run_shows_its_arms(client: Client, store: Store) -> None:
    add_sweep(store)
    add_runs(store, "c1", "waiting")
    finish(store, "c0", evidence())
    found = client.get("/v1/runs/run-1").json()
    assert (found["cell_id"], found["attempt"], found["state"]) == ("c0", 1, "finished")
    assert found["arms"] == [{"role": "cold", "repeat": 1, "outcome": "ok", "wall_s": 12.5, "failure": None}]
    (arm,) = client.get("/v1/runs/waiting").json()["arms"]
    assert (arm["role"], arm["outcome"]) == ("cold", None)


def test_phases_of_every_start(client: Client, store: Store) -> None:
    starts = [
        TimedStart(role=role, repeat=1, times=times(total)) for role, total in ((Role.COLD, 20.0), (Role.WARM, 6.0))
    ]
    add_sweep(store)
    finish(store, "c0", evidence(compile=Compile(cold=times(20.0), warm=times(6.0), starts=starts)))
    cold, warm = client.get("/v1/runs/run-1/phases").json()["starts"]
    assert (cold["arm"], cold["total_s"], warm["arm"], warm["total_s"]) == ("cold", 20.0, "warm", 6.0)
    for start in (cold, warm):
        for rank in start["ranks"]:
            assert sum(phase["s"] for phase in rank["phases"]) + rank["unaccounted_s"] == pytest.approx(rank["total_s"])


def test_residuals_with_the_first_wrong_place(client: Client, store: Store) -> None:
    wrong = residual(bitwise_equal=False, first_divergence=divergence(), worst_score=math.inf)
    add_sweep(store)
    finish(store, "c0", evidence(residual=[wrong]))
    (found,) = client.get("/v1/runs/run-1/residuals").json()["comparisons"]
    assert found["first_divergence"]["site"] == "layers.1.mlp"
    assert found["worst_score"] == "Infinity"


@pytest.mark.parametrize("what", ["phases", "residuals"])
def test_a_run_that_has_not_ended_has_none(client: Client, store: Store, what: str) -> None:
    add_sweep(store)
    add_runs(store, "c0", "run-1")
    (found,) = client.get(f"/v1/runs/run-1/{what}").json().values()
    assert found == []


def test_events_of_a_run_are_read_on_from_a_cursor(client: Client, store: Store) -> None:
    add_sweep(store)
    add_runs(store, "c0", "run-1", "run-2")
    with store.transaction() as session:
        repositories.add_events(
            session, [NewEvent(SWEEP, float(at), "phase", "c0", f"run-{1 + at % 2}") for at in range(6)]
        )
    first = client.get("/v1/runs/run-2/events?limit=2").json()
    rest = client.get(f"/v1/runs/run-2/events?after={first['next']}").json()
    assert [event["at"] for event in first["events"] + rest["events"]] == [1.0, 3.0, 5.0]


UNKNOWN = [
    ("/v1/sweeps/nope/cells", "unknown-sweep"),
    ("/v1/sweeps/nope/runs", "unknown-sweep"),
    ("/v1/sweeps/nope/events/stream", "unknown-sweep"),
    ("/v1/sweeps/nope/export/junit", "unknown-sweep"),
    ("/v1/cells/nope/c0", "unknown-sweep"),
    (f"/v1/cells/{SWEEP}/nope", "unknown-cell"),
    (f"/v1/cells/{SWEEP}/nope/runs", "unknown-cell"),
    ("/v1/runs/nope", "unknown-run"),
    ("/v1/runs/nope/phases", "unknown-run"),
    ("/v1/runs/nope/residuals", "unknown-run"),
    ("/v1/runs/nope/events", "unknown-run"),
    ("/v1/runs/nope/events/stream", "unknown-run"),
    ("/v1/runs/nope/artifacts", "unknown-run"),
    ("/v1/runs/nope/artifacts/cold/engine.log", "unknown-run"),
    ("/v1/runs/nope/logs", "unknown-run"),
    ("/v1/runs/nope/logs/cold", "unknown-run"),
]
LISTS = [
    f"/v1/sweeps/{SWEEP}/cells",
    f"/v1/sweeps/{SWEEP}/runs",
    f"/v1/cells/{SWEEP}/c0/runs",
    "/v1/runs/r/artifacts",
]


def test_what_is_not_there(client: Client, store: Store) -> None:
    add_sweep(store)
    for path, code in UNKNOWN:
        assert_problem(client.get(path), 404, code)


def test_a_cursor_of_another_list(client: Client, store: Store) -> None:
    add_sweep(store)
    add_runs(store, "c0", "r")
    for path in LISTS:
        assert client.get(path).status_code == 200
        for cursor in ("x", "3", encode("sweeps", 1), encode("cells", "a"), "é"):
            problem = assert_problem(client.get(f"{path}?after={cursor}"), 422, "invalid-cursor")
            assert "`next`" in problem["detail"]


def test_a_limit_out_of_bounds(client: Client) -> None:
    for path in LISTS:
        for limit in ("0", "101", "many"):
            assert_problem(client.get(f"{path}?limit={limit}"), 422, "invalid-request")
