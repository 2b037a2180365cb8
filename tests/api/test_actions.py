"""Cancel, run again and submit once more, by the controller itself on a real database; nothing is dispatched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dispatch.scripted import Asked, plan_of, settings_in, submit

from api.client import Client
from api.test_problems import assert_problem
from service.app import create_app
from service.dispatch import controller as controllers
from service.dispatch.controller import Controller
from service.store import Store
from workers.protocol import Check


@pytest.fixture
def sweep(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Client, str]:
    """A queued sweep of two cells, and a client of the controller that queued it."""
    settings = settings_in(tmp_path / "home")
    controller = Controller(settings, store)
    asked = Asked("a", (Check.COMPILE,)), Asked("b", (Check.COMPILE,))
    sweep_id = submit(controller, settings, *asked)
    monkeypatch.setattr(controllers, "plan", lambda *_: plan_of(settings, *asked))
    return Client(create_app(settings, store, controller)), sweep_id


def states(client: Client, sweep_id: str) -> dict[str, str]:
    cells = client.get(f"/v1/sweeps/{sweep_id}/cells").json()["cells"]
    return {cell["name"]: cell["state"] for cell in cells}


def test_a_sweep_is_cancelled_once(sweep: tuple[Client, str]) -> None:
    client, sweep_id = sweep
    assert states(client, sweep_id) == {"a": "queued", "b": "queued"}
    response = client.post(f"/v1/sweeps/{sweep_id}/cancel")
    assert (response.status_code, response.json()) == (202, {"id": sweep_id})
    assert states(client, sweep_id) == {"a": "cancelled", "b": "cancelled"}
    assert client.get(f"/v1/sweeps/{sweep_id}").json()["state"] == "ended"
    problem = assert_problem(client.post(f"/v1/sweeps/{sweep_id}/cancel"), 409, "wrong-state")
    assert sweep_id in problem["detail"]


def test_one_cell_is_cancelled_and_the_other_goes_on(sweep: tuple[Client, str]) -> None:
    client, sweep_id = sweep
    assert client.post(f"/v1/cells/{sweep_id}/id-b/cancel").status_code == 202
    assert states(client, sweep_id) == {"a": "queued", "b": "cancelled"}
    assert client.get(f"/v1/sweeps/{sweep_id}").json()["state"] == "active"
    assert_problem(client.post(f"/v1/cells/{sweep_id}/id-b/cancel"), 409, "wrong-state")


@pytest.mark.parametrize(
    ("path", "options", "again"),
    [
        ("/v1/sweeps/{}/rerun", {}, {"a", "b"}),
        ("/v1/sweeps/{}/rerun", {"json": {}}, {"a", "b"}),
        ("/v1/sweeps/{}/rerun", {"json": {"cells": None}}, {"a", "b"}),
        ("/v1/sweeps/{}/rerun", {"json": {"cells": ["id-b"]}}, {"b"}),
        ("/v1/cells/{}/id-a/rerun", {}, {"a"}),
    ],
)
def test_cells_are_run_again(sweep: tuple[Client, str], path: str, options: dict[str, object], again: set[str]) -> None:
    client, sweep_id = sweep
    client.post(f"/v1/sweeps/{sweep_id}/cancel")
    assert client.post(path.format(sweep_id), **options).status_code == 202
    assert {name for name, state in states(client, sweep_id).items() if state == "queued"} == again
    assert client.get(f"/v1/sweeps/{sweep_id}").json()["state"] == "active"


def test_a_cell_that_has_not_ended_is_not_run_again(sweep: tuple[Client, str]) -> None:
    client, sweep_id = sweep
    assert_problem(client.post(f"/v1/cells/{sweep_id}/id-a/rerun"), 409, "wrong-state")
    assert_problem(client.post(f"/v1/sweeps/{sweep_id}/rerun"), 409, "wrong-state")


def test_of_several_cells_all_or_none_are_run_again(sweep: tuple[Client, str]) -> None:
    client, sweep_id = sweep
    client.post(f"/v1/cells/{sweep_id}/id-b/cancel")
    body = {"cells": ["id-b", "id-a"]}
    assert_problem(client.post(f"/v1/sweeps/{sweep_id}/rerun", json=body), 409, "wrong-state")
    assert states(client, sweep_id) == {"a": "queued", "b": "cancelled"}


BODIES: list[object] = [
    {"cells": []}, {"cells": "c1"}, {"cells": [1]}, {"cells": None, "x": 1}, {"cell": ["c1"]}, {"cells": [""]},
    {"cells": ["a\0"]}, {"cells": ["\ud800"]}, [], "c1", 3,
]  # fmt: skip


def test_a_body_that_is_not_as_it_should_be(sweep: tuple[Client, str]) -> None:
    client, sweep_id = sweep
    for body in BODIES:
        sent = {"content": json.dumps(body), "headers": {"Content-Type": "application/json"}}
        problem = assert_problem(client.post(f"/v1/sweeps/{sweep_id}/rerun", **sent), 422, "invalid-request")
        assert problem["errors"][0]["path"].startswith("body"), body


def test_what_is_not_there(sweep: tuple[Client, str]) -> None:
    client, sweep_id = sweep
    for path in ("/v1/sweeps/nope/cancel", "/v1/sweeps/nope/rerun", "/v1/sweeps/nope/clone", "/v1/cells/nope/c0/rerun"):
        assert_problem(client.post(path), 404, "unknown-sweep")
    for path in (f"/v1/cells/{sweep_id}/nope/cancel", f"/v1/cells/{sweep_id}/nope/rerun"):
        assert_problem(client.post(path), 404, "unknown-cell")
    assert states(client, sweep_id) == {"a": "queued", "b": "queued"}


def test_a_clone_is_a_new_sweep_of_the_same_matrix(sweep: tuple[Client, str]) -> None:
    client, sweep_id = sweep
    response = client.post(f"/v1/sweeps/{sweep_id}/clone")
    assert response.status_code == 201
    clone = response.json()["id"]
    assert clone != sweep_id
    assert response.headers["Location"] == f"/v1/sweeps/{clone}"
    matrices = [client.get(f"/v1/sweeps/{name}/report").json()["sweep"]["matrix"] for name in (sweep_id, clone)]
    assert matrices[0] == matrices[1] == {"name": "scripted"}
    assert states(client, clone) == {"a": "queued", "b": "queued"}
