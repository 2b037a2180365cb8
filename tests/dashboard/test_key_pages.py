"""Keys by their page: shown once, revoked, and for administrators alone."""

from __future__ import annotations

import pytest
from api.client import Client
from api.keyed import bearer, make_key
from api.test_problems import assert_problem

from dashboard.page import Page
from dashboard.test_login import OWN, session
from service.domain.keys import Scope
from service.store import Store


def token_of(client: Client, headers: dict[str, str]) -> str:
    page = Page(client.get("/keys/", headers=headers).text)
    (token,) = {str(item["value"]) for item in page.named("input") if item.get("name") == "csrf"}
    return token


def test_the_first_key_is_shown_once_and_locks_the_door(client: Client) -> None:
    assert "whoever reaches this machine's loopback address may do everything" in Page(client.get("/keys/").text).text
    response = client.post("/keys/", data={"name": "mine", "scope": "admin", "lifetime": "12h"}, headers=OWN)
    assert response.status_code == 200
    assert response.headers["Cache-Control"] == "no-store"
    page = Page(response.text)
    (shown,) = [word for word in page.words if word.startswith("sp_") and len(word) > 40]
    assert "from now on every request needs a key" in page.text
    assert client.get("/keys/").status_code == 401
    assert client.get("/v1/keys", headers=bearer(shown)).status_code == 200
    again = client.get("/keys/", headers=session(client, shown))
    assert shown not in again.text
    assert "mine" in again.text


def test_a_further_key_opens_what_its_scope_says(client: Client, store: Store) -> None:
    headers = session(client, make_key(store))
    fields = {"name": "CI", "scope": "read", "lifetime": "90d"}
    assert_problem(client.post("/keys/", data=fields, headers=headers | OWN), 403, "csrf")
    page = Page(client.post("/keys/", data=fields | {"csrf": token_of(client, headers)}, headers=headers | OWN).text)
    (shown,) = [word for word in page.words if word.startswith("sp_") and len(word) > 40]
    assert "from now on every request" not in page.text
    assert client.get("/v1/sweeps", headers=bearer(shown)).status_code == 200
    assert_problem(client.get("/v1/keys", headers=bearer(shown)), 403, "scope-missing")


def test_what_is_wrong_stands_beside_its_field(client: Client) -> None:
    wrong = [
        ("name", "", "this is missing"),
        ("name", "x" * 101, "at most 100 characters"),
        ("scope", "all", "Input should be"),
        ("lifetime", "soon", "is no lifetime"),
    ]
    for field, text, said in wrong:
        fields = {"name": "CI", "scope": "read", "lifetime": "90d", field: text}
        response = client.post("/keys/", data=fields, headers=OWN)
        assert response.status_code == 422
        page = Page(response.text)
        (item,) = [item for item in (*page.named("input"), *page.named("select")) if item.get("aria-invalid")]
        assert item["name"] == field
        assert said in page.text
    assert client.get("/v1/keys").json()["keys"] == []


def test_a_key_is_revoked_from_its_row(client: Client, store: Store) -> None:
    other = make_key(store, Scope.SUBMIT, "leaked")
    key_id = other.split("_")[1]
    headers = session(client, make_key(store))
    page = Page(client.get("/keys/", headers=headers).text)
    assert f"../keys/{key_id}/revoke" in page.attributes("action")
    response = client.post(f"/keys/{key_id}/revoke", data={"csrf": token_of(client, headers)}, headers=headers | OWN)
    assert (response.status_code, response.headers["Location"]) == (303, "../")
    assert client.get("/v1/sweeps", headers=bearer(other)).status_code == 401
    page = Page(client.get("/keys/", headers=headers).text)
    assert "revoked" in page.text
    assert f"../keys/{key_id}/revoke" not in page.attributes("action")


@pytest.mark.parametrize("scope", [Scope.READ, Scope.SUBMIT])
def test_who_is_no_administrator_is_told_so_and_sees_no_key(client: Client, store: Store, scope: Scope) -> None:
    make_key(store, name="somebody's")
    headers = session(client, make_key(store, scope))
    response = client.get("/keys/", headers=headers)
    assert response.status_code == 403
    assert "scope admin" in Page(response.text).text
    assert "somebody" not in response.text
    page = Page(client.get("/schedules/", headers=headers).text)
    (token,) = {str(item["value"]) for item in page.named("input") if item.get("name") == "csrf"}
    fields = {"name": "more", "scope": "admin", "lifetime": "never", "csrf": token}
    assert_problem(client.post("/keys/", data=fields, headers=headers | OWN), 403, "scope-missing")
