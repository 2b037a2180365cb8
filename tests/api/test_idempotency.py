from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest

from api.client import Client, StoringController, make_client
from api.keyed import bearer, make_key
from api.test_problems import assert_problem
from service.domain.document import Document
from service.domain.keys import Scope
from service.store import Store

MATRIX = {"name": "nightly"}
ONCE = {"Idempotency-Key": "build-4711"}


def sweeps(client: Client, **options: Any) -> list[str]:
    return [item["id"] for item in client.get("/v1/sweeps", **options).json()["sweeps"]]


def test_the_same_submission_twice_is_one_sweep(client: Client, controller: StoringController) -> None:
    first = client.post("/v1/sweeps", json=MATRIX, headers=ONCE)
    again = client.post("/v1/sweeps", json=MATRIX, headers=ONCE)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert first.headers["Location"] == again.headers["Location"]
    assert sweeps(client) == [first.json()["id"]]
    assert len(controller.documents) == 1


def test_without_the_header_they_are_two(client: Client) -> None:
    assert client.post("/v1/sweeps", json=MATRIX).json() != client.post("/v1/sweeps", json=MATRIX).json()


@pytest.mark.parametrize("change", [{"json": {"name": "other"}}, {"content": b"name: nightly"}])
def test_another_body_under_the_same_key_is_refused(client: Client, change: dict[str, Any]) -> None:
    client.post("/v1/sweeps", json=MATRIX, headers=ONCE)
    headers = ONCE | ({"Content-Type": "application/yaml"} if "content" in change else {})
    assert_problem(client.post("/v1/sweeps", headers=headers, **change), 409, "idempotency-key-reused")
    assert len(sweeps(client)) == 1


def test_each_api_key_has_keys_of_its_own(client: Client, store: Store) -> None:
    ids = set()
    for key in (make_key(store, Scope.SUBMIT), make_key(store, Scope.SUBMIT)):
        ids.add(client.post("/v1/sweeps", json=MATRIX, headers=ONCE | bearer(key)).json()["id"])
    assert len(ids) == 2


def test_a_matrix_that_was_refused_leaves_the_key_free(client: Client) -> None:
    assert client.post("/v1/sweeps", json={"engine": {}}, headers=ONCE).status_code == 422
    assert client.post("/v1/sweeps", json=MATRIX, headers=ONCE).status_code == 201


class Lost(StoringController):
    """Stores the sweep, and then dies before anybody hears of it; or dies first."""

    def __init__(self, store: Store, stores: bool) -> None:
        super().__init__(store)
        self.stores = stores
        self.died = False

    def submit(self, document: Document, *, sweep_id: str | None = None, **terms: Any) -> str:
        if self.died:
            return super().submit(document, sweep_id=sweep_id)
        self.died = True
        if self.stores:
            super().submit(document, sweep_id=sweep_id)
        raise KeyboardInterrupt


@pytest.mark.parametrize("stores", [True, False])
def test_a_controller_that_was_killed_in_between_makes_no_second_sweep(store: Store, stores: bool) -> None:
    client = make_client(store, Lost(store, stores))
    with pytest.raises(KeyboardInterrupt):
        client.post("/v1/sweeps", json=MATRIX, headers=ONCE)
    assert len(sweeps(client)) == stores
    again = client.post("/v1/sweeps", json=MATRIX, headers=ONCE)
    assert again.status_code == 201
    assert sweeps(client) == [again.json()["id"]]


class Meeting(StoringController):
    """Lets two submissions meet before either is stored."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.barrier = threading.Barrier(2)

    def submit(self, document: Document, *, sweep_id: str | None = None, **terms: Any) -> str:
        self.barrier.wait(timeout=30)
        return super().submit(document, sweep_id=sweep_id)


def test_two_at_once_are_one_sweep(store: Store) -> None:
    client = make_client(store, Meeting(store))
    answers: list[httpx.Response] = []

    def send() -> None:
        answers.append(client.post("/v1/sweeps", json=MATRIX, headers=ONCE))

    threads = [threading.Thread(target=send) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in answers] == [201, 201]
    assert {answer.json()["id"] for answer in answers} == set(sweeps(client))
    assert len(sweeps(client)) == 1


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 201, "é"])
def test_a_key_that_is_none(client: Client, key: str) -> None:
    headers = {"Idempotency-Key": key.encode("latin-1")}
    assert_problem(client.post("/v1/sweeps", json=MATRIX, headers=headers), 422, "invalid-request")
