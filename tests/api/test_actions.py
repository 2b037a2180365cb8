"""Cancel, run again and submit once more: what reaches the controller, and what its refusals become."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from store.samples import SWEEP, add_sweep

from api.client import Client, StoringController, make_client
from api.test_problems import assert_problem
from service.domain.document import from_tree
from service.domain.lifecycle import State, step
from service.store import Store, repositories


class Controller(StoringController):
    """Cancels and queues again in the store alone, by the lifecycle's own rules; drives nothing."""

    def cancel(self, sweep_id: str, cell_id: str | None = None) -> None:
        with self._store.transaction() as session:
            repositories.get_sweep(session, sweep_id)
            cells = repositories.cells_of(session, sweep_id)
            for cell in cells if cell_id is None else [repositories.get_cell(session, sweep_id, cell_id)]:
                repositories.set_cell_state(session, sweep_id, cell.id, State.CANCELLED)

    def rerun(self, sweep_id: str, cells: Sequence[str] | None = None) -> None:
        with self._store.reading() as session:
            repositories.get_sweep(session, sweep_id)
            every = [cell.id for cell in repositories.cells_of(session, sweep_id)]
            for cell_id in every if cells is None else cells:
                step(f"cell {cell_id}", repositories.get_cell(session, sweep_id, cell_id).state, State.QUEUED)

    def clone(self, sweep_id: str) -> str:
        with self._store.reading() as session:
            matrix = repositories.get_sweep(session, sweep_id).matrix
        return self.submit(from_tree(matrix))


@pytest.fixture
def client(store: Store) -> Client:
    add_sweep(store)
    return make_client(store, Controller(store))


def states(client: Client) -> list[str]:
    return [cell["state"] for cell in client.get(f"/v1/sweeps/{SWEEP}/cells").json()["cells"]]


def test_a_sweep_is_cancelled_once(client: Client) -> None:
    response = client.post(f"/v1/sweeps/{SWEEP}/cancel")
    assert (response.status_code, response.json()) == (202, {"id": SWEEP})
    assert states(client) == ["cancelled", "cancelled"]
    problem = assert_problem(client.post(f"/v1/sweeps/{SWEEP}/cancel"), 409, "wrong-state")
    assert "cannot become cancelled" in problem["detail"]


def test_one_cell_is_cancelled(client: Client) -> None:
    assert client.post(f"/v1/cells/{SWEEP}/c1/cancel").status_code == 202
    assert states(client) == ["auditing", "cancelled"]


def test_cells_are_run_again(client: Client) -> None:
    for path, options in (
        (f"/v1/sweeps/{SWEEP}/rerun", {}),
        (f"/v1/sweeps/{SWEEP}/rerun", {"json": {}}),
        (f"/v1/sweeps/{SWEEP}/rerun", {"json": {"cells": ["c1"]}}),
        (f"/v1/cells/{SWEEP}/c0/rerun", {}),
    ):
        assert client.post(path, **options).status_code == 202


def test_a_cell_in_the_wrong_state_is_a_conflict(client: Client) -> None:
    client.post(f"/v1/cells/{SWEEP}/c1/cancel")
    assert_problem(client.post(f"/v1/cells/{SWEEP}/c1/rerun"), 409, "wrong-state")


@pytest.mark.parametrize(
    "body", [{"cells": []}, {"cells": "c1"}, {"cells": [1]}, {"cells": None, "x": 1}, [], "c1", 3, {"cell": ["c1"]}]
)
def test_a_body_that_is_not_as_it_should_be(client: Client, body: object) -> None:
    problem = assert_problem(client.post(f"/v1/sweeps/{SWEEP}/rerun", json=body), 422, "invalid-request")
    assert problem["errors"][0]["path"].startswith("body")


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/v1/sweeps/nope/cancel", "unknown-sweep"),
        ("/v1/sweeps/nope/rerun", "unknown-sweep"),
        ("/v1/sweeps/nope/clone", "unknown-sweep"),
        (f"/v1/cells/{SWEEP}/nope/cancel", "unknown-cell"),
        (f"/v1/cells/{SWEEP}/nope/rerun", "unknown-cell"),
    ],
)
def test_what_is_not_there(client: Client, path: str, code: str) -> None:
    assert_problem(client.post(path), 404, code)


def test_a_clone_is_a_new_sweep_of_the_same_matrix(client: Client) -> None:
    response = client.post(f"/v1/sweeps/{SWEEP}/clone")
    assert response.status_code == 201
    assert response.headers["Location"] == f"/v1/sweeps/{response.json()['id']}"
    report = client.get(response.headers["Location"] + "/report").json()
    assert report["sweep"]["matrix"] == client.get(f"/v1/sweeps/{SWEEP}/report").json()["sweep"]["matrix"]
