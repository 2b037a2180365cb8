from __future__ import annotations

from typing import Any

import pytest

from api.client import Client, StoringController
from api.keyed import bearer, make_key
from service.domain.keys import Scope
from service.store import Store, StoreUnavailable
from service.store.repositories import audit
from service.store.trouble import Trouble

MATRIX = {"name": "nightly"}


def trail(client: Client, key: str, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"/v1/audit{query}", headers=bearer(key)).json()["entries"]
    return found


def test_what_was_changed_is_written_down_with_who_did_it(client: Client, store: Store) -> None:
    admin, submitter = make_key(store), make_key(store, Scope.SUBMIT, "nightly CI")
    sweep = client.post("/v1/sweeps", json=MATRIX, headers=bearer(submitter)).json()["id"]
    (entry,) = trail(client, admin)
    assert (entry["actor"], entry["key_id"]) == ("nightly CI", submitter.split("_")[1])
    assert (entry["action"], entry["target"], entry["status"]) == ("POST", f"/v1/sweeps/{sweep}", 201)
    assert entry["client"]
    assert entry["at"].endswith("Z")


def test_looking_is_not(client: Client, store: Store) -> None:
    admin = make_key(store)
    client.get("/v1/sweeps", headers=bearer(admin))
    assert trail(client, admin) == []


def test_what_somebody_tried_is_written_down_too(client: Client, store: Store) -> None:
    admin, reader = make_key(store), make_key(store, Scope.READ, "a reader")
    client.post("/v1/sweeps", json=MATRIX, headers=bearer(reader))
    client.post("/v1/sweeps", json={"engine": 1}, headers=bearer(admin))
    statuses = [(entry["actor"], entry["status"]) for entry in trail(client, admin)]
    assert statuses == [("a key", 422), ("a reader", 403)]


def test_what_cannot_be_written_down_is_not_done(
    client: Client, store: Store, controller: StoringController, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreUnavailable(Trouble.FULL, "of this test", "no room")

    with monkeypatch.context() as patched:
        patched.setattr(audit, "add_audit", full)
        answer = client.post("/v1/sweeps", json=MATRIX)
    assert (answer.status_code, answer.json()["code"]) == (503, "database-full")
    assert controller.documents == []
    assert client.post("/v1/sweeps", json=MATRIX).status_code == 201
    assert len(controller.documents) == 1


def test_what_was_asked_for_stays_written_down_when_its_outcome_does_not(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise StoreUnavailable(Trouble.FULL, "of this test", "no room")

    monkeypatch.setattr(audit, "conclude_audit", full)
    assert client.post("/v1/sweeps", json=MATRIX).status_code == 201
    (entry,) = client.get("/v1/audit").json()["entries"]
    assert (entry["action"], entry["target"], entry["status"]) == ("POST", "/v1/sweeps", None)
    assert "came to 201" in caplog.text


def test_without_keys_it_is_the_local_user(client: Client, store: Store) -> None:
    client.post("/v1/sweeps", json=MATRIX)
    (entry,) = client.get("/v1/audit").json()["entries"]
    assert (entry["key_id"], entry["actor"]) == (None, "local user")


def test_the_trail_has_pages_and_can_be_asked_of_one_key(client: Client, store: Store) -> None:
    admin, other = make_key(store), make_key(store, Scope.SUBMIT)
    for key in (admin, other, admin):
        client.post("/v1/sweeps", json=MATRIX, headers=bearer(key))
    page = client.get("/v1/audit?limit=2", headers=bearer(admin)).json()
    rest = client.get(f"/v1/audit?limit=2&before={page['next']}", headers=bearer(admin)).json()
    ids = [entry["id"] for entry in page["entries"] + rest["entries"]]
    assert ids == sorted(ids, reverse=True)
    assert (len(ids), rest["next"]) == (3, None)
    assert len(trail(client, admin, f"?key_id={other.split('_')[1]}")) == 1


def test_no_key_stands_in_the_trail(client: Client, store: Store) -> None:
    admin = make_key(store)
    new = client.post("/v1/keys", json={"name": "x", "scope": "read"}, headers=bearer(admin)).json()
    client.post("/login", data={"key": admin})
    text = str(trail(client, admin))
    assert new["id"] in text
    assert new["key"][-43:] not in text
    assert admin[-43:] not in text
