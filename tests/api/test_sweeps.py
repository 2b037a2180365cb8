from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from store.samples import SWEEP, add_sweep, advance, evidence, finish, phase

from api.client import Client, StoringController, make_client
from api.keyed import bearer, make_key
from service.domain.keys import Scope
from service.domain.lifecycle import State
from service.store import Store, repositories
from service.store.records import NewEvent

MATRIX = {"name": "quickstart", "engine": {"model": "tiny:llama"}}


def test_a_matrix_is_submitted_as_json(client: Client, controller: StoringController) -> None:
    response = client.post("/v1/sweeps", json=MATRIX)
    assert response.status_code == 201
    assert response.json() == {"id": "sweep-1"}
    assert response.headers["Location"] == "/v1/sweeps/sweep-1"
    assert client.get(response.headers["Location"]).json()["name"] == "quickstart"
    assert controller.documents[0].tree == MATRIX


@pytest.mark.parametrize("media_type", ["application/yaml", "text/yaml; charset=utf-8", "Application/X-YAML"])
def test_a_matrix_is_submitted_as_yaml(client: Client, controller: StoringController, media_type: str) -> None:
    text = "\ufeffname: quickstart\nengine:\n  model: tiny:llama\n"
    response = client.post("/v1/sweeps", content=text.encode(), headers={"Content-Type": media_type})
    assert response.status_code == 201
    assert controller.documents[0].tree == MATRIX


def test_location_has_the_prefix_of_the_server(store: Store) -> None:
    response = make_client(store, root_path="/shardproof").post("/shardproof/v1/sweeps", json=MATRIX)
    assert response.headers["Location"] == "/shardproof/v1/sweeps/sweep-1"


def test_a_body_may_be_as_large_as_the_limit_whether_announced_or_not(store: Store) -> None:
    client = make_client(store, body_limit_bytes=64)
    headers = {"Content-Type": "application/yaml"}

    async def in_chunks(size: int) -> AsyncIterator[bytes]:
        yield b"name: x #"
        for _ in range(size - 9):
            yield b"x"

    assert client.post("/v1/sweeps", content=in_chunks(64), headers=headers).status_code == 201
    assert client.post("/v1/sweeps", content=b"name: x #".ljust(64, b"x"), headers=headers).status_code == 201
    for content in (in_chunks(65), b"name: x #".ljust(65, b"x")):
        assert client.post("/v1/sweeps", content=content, headers=headers).status_code == 413


def test_sweeps_are_listed_page_by_page_without_results(client: Client, store: Store) -> None:
    ids = [f"2026113{day}-000000-aaaaaa" for day in range(5)]
    for sweep_id in ids:
        add_sweep(store, sweep_id)
    seen: list[str] = []
    path = "/v1/sweeps?limit=2"
    for _ in range(3):
        page = client.get(path).json()
        assert all(item.keys() >= {"name", "state", "cells"} for item in page["sweeps"])
        assert not any("matrix" in item or isinstance(item["cells"], list) for item in page["sweeps"])
        seen += [item["id"] for item in page["sweeps"]]
        path = f"/v1/sweeps?limit=2&before={page['next']}"
    assert seen == ids[::-1]
    assert page["next"] is None


def test_a_full_last_page_has_no_next(client: Client, store: Store) -> None:
    add_sweep(store)
    assert client.get("/v1/sweeps?limit=1").json()["next"] is None


def test_a_sweep_shows_what_its_ranks_do(client: Client, store: Store) -> None:
    add_sweep(store)
    advance(store, "c0", State.QUEUED, State.LEASED, State.RUNNING)
    with store.transaction() as session:
        repositories.add_events(session, [phase("c0", 0, "dynamo"), phase("c0", 1, "load")])
    found = client.get(f"/v1/sweeps/{SWEEP}").json()
    assert (found["state"], found["ended_at"]) == ("active", None)
    assert found["created_at"] == "2026-11-30T02:15:00Z"
    running, waiting = found["cells"]
    assert (running["state"], running["verdict"], running["ok"]) == ("running", None, None)
    assert [(item["arm"], item["rank"], item["name"]) for item in running["phases"]] == [
        ("cold", 0, "dynamo"),
        ("cold", 1, "load"),
    ]
    assert (waiting["state"], waiting["phases"]) == ("auditing", [])


def test_a_report_is_the_stored_one(client: Client, store: Store) -> None:
    add_sweep(store, cells=1)
    finish(store, "c0", evidence())
    report = client.get(f"/v1/sweeps/{SWEEP}/report").json()
    assert report["schema"] == "shardproof.report/1"
    assert report["cells"][0]["compile"]["cold"]["total_s"] == 20.0


def test_events_are_read_on_from_a_cursor(client: Client, store: Store) -> None:
    add_sweep(store)
    with store.transaction() as session:
        repositories.add_events(session, [NewEvent(SWEEP, float(at), "phase", "c0") for at in range(3)])
    first = client.get(f"/v1/sweeps/{SWEEP}/events?limit=2").json()
    rest = client.get(f"/v1/sweeps/{SWEEP}/events?after={first['next']}").json()
    assert [event["at"] for event in first["events"] + rest["events"]] == [0.0, 1.0, 2.0]
    assert client.get(f"/v1/sweeps/{SWEEP}/events?after={rest['next']}").json() == {"events": [], "next": rest["next"]}


def test_health_says_ok(client: Client) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}


def test_the_controller_is_told_on_which_terms_and_by_whom(
    client: Client, controller: StoringController, store: Store
) -> None:
    client.post("/v1/sweeps", json=MATRIX)
    key = make_key(store, Scope.SUBMIT)
    client.post("/v1/sweeps?priority=7&max_parallel=2", json=MATRIX, headers=bearer(key))
    nothing = {"priority": 0, "max_parallel": None, "key_id": None}
    assert controller.terms == [nothing, {"priority": 7, "max_parallel": 2, "key_id": key.split("_")[1]}]


@pytest.mark.parametrize("query", ["priority=101", "priority=high", "max_parallel=0", "max_parallel=1.5"])
def test_terms_that_are_none(client: Client, query: str) -> None:
    assert client.post(f"/v1/sweeps?{query}", json=MATRIX).status_code == 422
