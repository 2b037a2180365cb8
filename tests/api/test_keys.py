from __future__ import annotations

from typing import Any

import pytest

from api.client import Client
from api.keyed import bearer, make_key
from api.test_problems import assert_problem
from service.domain.keys import Scope
from service.store import Store


@pytest.fixture
def admin(store: Store) -> dict[str, str]:
    return bearer(make_key(store, Scope.ADMIN, "the operator"))


def made(client: Client, headers: dict[str, str], **body: Any) -> dict[str, Any]:
    response = client.post("/v1/keys", json={"name": "nightly", "scope": "read", **body}, headers=headers)
    assert response.status_code == 201, response.text
    found: dict[str, Any] = response.json()
    return found


def test_the_first_key_locks_the_door_behind_itself(client: Client) -> None:
    key = made(client, {}, scope="admin")
    assert key["created_by"] == "local user"
    assert client.get("/v1/keys").status_code == 401
    assert client.get("/v1/keys", headers=bearer(key["key"])).status_code == 200


def test_a_key_is_shown_once_and_opens_what_it_should(client: Client, admin: dict[str, str]) -> None:
    response = client.post("/v1/keys", json={"name": "nightly", "scope": "submit", "lifetime": "12h"}, headers=admin)
    key = response.json()
    assert response.headers["Cache-Control"] == "no-store"
    assert key["key"].startswith(key["prefix"] + "_")
    assert (key["scope"], key["usable"], key["name"]) == ("submit", True, "nightly")
    shown = client.get(response.headers["Location"], headers=admin)
    assert key["key"][-43:] not in shown.text
    assert shown.json() == {name: value for name, value in key.items() if name != "key"}
    assert client.post("/v1/sweeps", json={"name": "x"}, headers=bearer(key["key"])).status_code == 201


def test_the_database_cannot_be_read_for_keys(client: Client, admin: dict[str, str], store: Store) -> None:
    key = made(client, admin)["key"]
    with store.reading() as session:
        connection = session.connection()
        dumped = "\n".join(str(row) for row in connection.exec_driver_sql("SELECT * FROM keys"))
    assert key.split("_")[1] in dumped
    assert key[-43:] not in dumped


def test_keys_are_listed_page_by_page(client: Client, admin: dict[str, str]) -> None:
    ids = {made(client, admin)["id"] for _ in range(4)}
    seen: list[str] = []
    path = "/v1/keys?limit=2"
    while True:
        page = client.get(path, headers=admin).json()
        seen += [key["id"] for key in page["keys"]]
        if page["next"] is None:
            break
        path = f"/v1/keys?limit=2&before={page['next']}"
    assert len(seen) == len(set(seen)) == 5
    assert ids < set(seen)


def test_a_revoked_key_opens_nothing_and_stays_in_the_list(client: Client, admin: dict[str, str]) -> None:
    key = made(client, admin)
    for _ in range(2):
        response = client.request("DELETE", f"/v1/keys/{key['id']}", headers=admin)
        assert (response.status_code, response.json()["usable"]) == (200, False)
    assert client.get("/v1/sweeps", headers=bearer(key["key"])).status_code == 401
    shown = client.get(f"/v1/keys/{key['id']}", headers=admin).json()
    assert (shown["usable"], shown["revoked_at"] is None) == (False, False)


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ({}, "body.name"),
        ({"name": "", "scope": "read"}, "body.name"),
        ({"name": " ", "scope": "read"}, "body.name"),
        ({"name": "a\0b", "scope": "read"}, "body.name"),
        ({"name": "x" * 101, "scope": "read"}, "body.name"),
        ({"name": 1, "scope": "read"}, "body.name"),
        ({"name": "x", "scope": "root"}, "body.scope"),
        ({"name": "x", "scope": "read", "lifetime": "1y"}, "body.lifetime"),
        ({"name": "x", "scope": "read", "lifetime": 90}, "body.lifetime"),
        ({"name": "x", "scope": "read", "admin": True}, "body.admin"),
        ([], "body"),
    ],
)
def test_a_key_that_cannot_be_made(client: Client, admin: dict[str, str], body: Any, wrong: str) -> None:
    problem = assert_problem(client.post("/v1/keys", json=body, headers=admin), 422, "invalid-request")
    assert wrong in [item["path"] for item in problem["errors"]]
    assert len(client.get("/v1/keys", headers=admin).json()["keys"]) == 1


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, b"\xff", b"9" * 5000])
def test_a_body_that_is_no_json(client: Client, admin: dict[str, str], content: bytes) -> None:
    headers = admin | {"Content-Type": "application/json"}
    response = client.post("/v1/keys", content=content, headers=headers)
    assert response.status_code in (400, 422)
    assert_problem(response, response.status_code, response.json()["code"])


def test_a_key_that_is_not_there(client: Client, admin: dict[str, str]) -> None:
    match = {"If-Match": '"x"'}
    assert_problem(client.get("/v1/keys/nope", headers=admin), 404, "unknown-key")
    assert_problem(client.request("DELETE", "/v1/keys/nope", headers=admin), 404, "unknown-key")
    assert_problem(client.request("PATCH", "/v1/keys/nope", json={}, headers=admin | match), 404, "unknown-key")


def test_two_who_change_one_key_do_not_overwrite_each_other(client: Client, admin: dict[str, str]) -> None:
    path = f"/v1/keys/{made(client, admin)['id']}"
    tag = client.get(path, headers=admin).headers["ETag"]

    def change(tag: str | None, **body: Any) -> Any:
        return client.request("PATCH", path, json=body, headers=admin | ({} if tag is None else {"If-Match": tag}))

    assert_problem(change(None, name="mine"), 428, "if-match-needed")
    mine = change(tag, name="mine")
    assert (mine.status_code, mine.json()["name"]) == (200, "mine")
    assert_problem(change(tag, name="theirs"), 412, "changed-since")
    assert client.get(path, headers=admin).json()["name"] == "mine"
    assert mine.headers["ETag"] != tag
    longer = change(mine.headers["ETag"], lifetime="never")
    assert (longer.json()["expires_at"], longer.json()["name"]) == (None, "mine")
    assert_problem(change(longer.headers["ETag"], scope="admin"), 422, "invalid-request")
