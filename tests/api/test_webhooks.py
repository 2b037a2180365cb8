from __future__ import annotations

import base64
from typing import Any

import pytest
from alerts.told import notice, tell
from dashboard.test_login import session
from store.samples import SWEEP, add_sweep

from api.client import Client, make_client
from api.keyed import bearer, make_key
from api.test_problems import assert_problem
from service.domain.keys import Scope
from service.store import Store

URL = "https://hooks.example/services/T000/B000/secretpart"


@pytest.fixture
def admin(store: Store) -> dict[str, str]:
    return bearer(make_key(store, Scope.ADMIN, "the operator"))


def made(client: Client, headers: dict[str, str], **body: Any) -> dict[str, Any]:
    response = client.post("/v1/webhooks", json={"url": URL, **body}, headers=headers)
    assert response.status_code == 201, response.text
    found: dict[str, Any] = response.json()
    return found


def test_secret_and_address_are_shown_to_nobody_again(client: Client, admin: dict[str, str]) -> None:
    response = client.post("/v1/webhooks", json={"url": URL, "kind": "slack"}, headers=admin)
    webhook = response.json()
    assert response.headers["Cache-Control"] == "no-store"
    assert webhook["secret"].startswith("whsec_")
    assert (webhook["host"], webhook["kind"]) == ("hooks.example", "slack")
    assert "suspected" not in webhook["kinds"]
    assert "regression" in webhook["kinds"]
    for path in (response.headers["Location"], "/v1/webhooks"):
        shown = client.get(path, headers=admin).text
        assert webhook["secret"] not in shown
        assert "secretpart" not in shown
        assert "hooks.example" in shown


@pytest.mark.parametrize("scope", [Scope.READ, Scope.SUBMIT])
def test_an_administrator_alone_says_who_is_told(client: Client, store: Store, scope: Scope) -> None:
    headers = bearer(make_key(store, scope))
    assert_problem(client.post("/v1/webhooks", json={"url": URL}, headers=headers), 403, "scope-missing")
    assert_problem(client.get("/v1/webhooks", headers=headers), 403, "scope-missing")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "http://127.0.0.1:8910/", "http://[::1]/", "x", "https://a@b.c"])
def test_what_nothing_is_sent_to_is_refused_with_its_place(client: Client, admin: dict[str, str], url: str) -> None:
    response = client.post("/v1/webhooks", json={"url": url}, headers=admin)
    problem = assert_problem(response, 422, "invalid-request")
    assert [item["path"] for item in problem["errors"]] == ["body.url"]
    assert client.get("/v1/webhooks", headers=admin).json()["webhooks"] == []


def test_an_operator_may_allow_addresses_inside(store: Store, admin: dict[str, str]) -> None:
    client = make_client(store, alerts_to_private_addresses=True)
    assert client.post("/v1/webhooks", json={"url": "http://10.0.0.1/"}, headers=admin).status_code == 201


@pytest.mark.parametrize("body", [{"kind": "pigeon"}, {"kinds": []}, {"kinds": ["gossip"]}, {"color": "red"}])
def test_fields_that_are_none(client: Client, admin: dict[str, str], body: dict[str, Any]) -> None:
    assert_problem(client.post("/v1/webhooks", json={"url": URL, **body}, headers=admin), 422, "invalid-request")


def test_they_are_listed_page_by_page_and_deleted(client: Client, admin: dict[str, str]) -> None:
    ids = {made(client, admin)["id"] for _ in range(3)}
    first = client.get("/v1/webhooks?limit=2", headers=admin).json()
    rest = client.get(f"/v1/webhooks?limit=2&before={first['next']}", headers=admin).json()
    assert ({item["id"] for item in first["webhooks"] + rest["webhooks"]}, rest["next"]) == (ids, None)
    gone = ids.pop()
    assert client.delete(f"/v1/webhooks/{gone}", headers=admin).json()["id"] == gone
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/deliveries"), ("POST", "/test")):
        answer = client.request(method, f"/v1/webhooks/{gone}{path}", headers=admin)
        assert_problem(answer, 404, "unknown-webhook")
    assert {item["id"] for item in client.get("/v1/webhooks", headers=admin).json()["webhooks"]} == ids


def test_a_trial_is_queued_and_seen(client: Client, admin: dict[str, str]) -> None:
    webhook = made(client, admin, kind="slack")
    queued = client.post(f"/v1/webhooks/{webhook['id']}/test", headers=admin)
    assert queued.status_code == 201, queued.text
    page = client.get(f"/v1/webhooks/{webhook['id']}/deliveries", headers=admin).json()
    assert page == {"deliveries": [queued.json()], "next": None}
    assert (page["deliveries"][0]["state"], page["deliveries"][0]["attempts"]) == ("waiting", 0)


# --- feed and comment ------------------------------------------------------------------------------------------------


def basic(password: str, name: str = "any") -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"}


def test_the_feed_is_for_who_has_a_key_also_as_a_password(client: Client, store: Store) -> None:
    tell(store, notice())
    key = make_key(store, Scope.READ)
    refused = client.get("/feed.atom")
    assert_problem(refused, 401, "key-needed")
    assert refused.headers["WWW-Authenticate"].startswith("Basic realm="), "so that a feed reader asks for it"
    for headers in (bearer(key), basic(key)):
        response = client.get("/feed.atom", headers=headers)
        assert response.status_code == 200, response.text
        assert response.headers["Content-Type"] == "application/atom+xml"
        assert f"http://shardproof/sweeps/{SWEEP}/cells/c0" in response.text
    for wrong in (basic("sp_no_key"), {"Authorization": "Basic %%%"}, {"Authorization": "Basic"}):
        assert_problem(client.get("/feed.atom", headers=wrong), 401, "key-needed")


def test_a_password_opens_nothing_else(client: Client, store: Store) -> None:
    key = make_key(store, Scope.ADMIN)
    for path in ("/", "/v1/sweeps", "/v1/keys", "/feed.atom/", "/feed.atomx"):
        response = client.get(path, headers=basic(key))
        assert_problem(response, 401, "key-needed")
        assert response.headers["WWW-Authenticate"] == "Bearer"
    assert_problem(client.post("/v1/sweeps", json={"name": "x"}, headers=basic(key)), 401, "key-needed")


def test_a_browser_that_was_given_a_password_still_needs_its_session_and_the_form(client: Client, store: Store) -> None:
    key = make_key(store, Scope.ADMIN)
    both = session(client, key) | basic(key)
    assert client.get("/", headers=both).status_code == 200
    for headers in (both, both | {"Origin": "http://evil.example"}):
        code = "csrf" if "Origin" not in headers else "cross-site"
        assert_problem(client.post("/v1/sweeps", json={"name": "x"}, headers=headers), 403, code)


def test_before_there_is_a_key_a_password_is_no_excuse_for_a_page_from_elsewhere(client: Client) -> None:
    headers = basic("cached") | {"Origin": "http://evil.example"}
    assert_problem(client.post("/v1/sweeps", json={"name": "x"}, headers=headers), 403, "cross-site")


def test_a_key_in_the_address_opens_nothing(client: Client, store: Store) -> None:
    key = make_key(store, Scope.READ)
    for name in ("key", "token", "access_token"):
        assert_problem(client.get(f"/feed.atom?{name}={key}"), 401, "key-needed")


def test_links_lead_to_where_the_operator_says(store: Store) -> None:
    add_sweep(store)
    tell(store, notice())
    client = make_client(store, public_url="https://ci.example/sp/")
    assert f'href="https://ci.example/sp/sweeps/{SWEEP}/cells/c0"' in client.get("/feed.atom").text
    assert f"https://ci.example/sp/sweeps/{SWEEP})" in client.get(f"/v1/sweeps/{SWEEP}/comment.md").text


def test_the_comment_on_a_sweep_has_what_changed_in_it(client: Client, store: Store) -> None:
    add_sweep(store)
    tell(store, notice(), notice(sweep_id="another", what="of another sweep"), notice(kind="suspected", what="perhaps"))
    response = client.get(f"/v1/sweeps/{SWEEP}/comment.md")
    assert response.headers["Content-Type"] == "text/markdown; charset=utf-8"
    assert "[quickstart](http://shardproof/sweeps/" in response.text
    assert "0 of 2 cells ok" in response.text
    assert "the warm start of tp2 takes 12.4 s" in response.text
    assert "of another sweep" not in response.text
    assert "perhaps" not in response.text
    assert_problem(client.get("/v1/sweeps/nope/comment.md"), 404, "unknown-sweep")
