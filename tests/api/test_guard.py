"""Once there is a key nothing is reached without one, and each key reaches what its scope says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from store.samples import add_sweep

from api.client import Client, make_client
from api.keyed import bearer, make_key
from api.test_problems import assert_problem
from service.api.guard import FEED
from service.domain.keys import Scope
from service.keyring import Keyring
from service.store import Store

MATRIX = {"name": "quickstart", "engine": {"model": "tiny:llama"}}
OPEN = {("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/login"), ("POST", "/login")}
EVERYWHERE = ("/nowhere", "/v1/nowhere", "/docs", "/redoc", "/openapi.json", "/docs/oauth2-redirect")


def routes(app: FastAPI) -> list[tuple[str, str]]:
    """Every method and path of ``app``, with something in place of its parameters."""
    found = [
        (method, route.path_format.format_map(dict.fromkeys(route.param_convertors, "x")))
        for route in app.routes
        if isinstance(route, APIRoute)
        for method in route.methods
    ]
    assert len(found) > 10
    return found


def test_without_a_key_made_nobody_needs_one(client: Client) -> None:
    assert client.get("/v1/sweeps").status_code == 200
    assert client.post("/v1/sweeps", json=MATRIX).status_code == 201
    assert client.get("/v1/keys").status_code == 200


def test_no_route_is_reached_without_a_key(client: Client, store: Store) -> None:
    make_key(store)
    for method, path in [*routes(client.app), *(("GET", path) for path in EVERYWHERE)]:
        response = client.request(method, path)
        if (method, path) in OPEN:
            assert response.status_code != 401, path
            continue
        assert_problem(response, 401, "key-needed")
        assert response.headers["WWW-Authenticate"].partition(" ")[0] == ("Basic" if path == FEED else "Bearer")


def test_a_route_that_says_nothing_is_guarded_by_its_method(client: Client, store: Store) -> None:
    reached: list[str] = []
    client.app.add_api_route("/v1/new", lambda: reached.append("looked"), methods=["GET"])
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        client.app.add_api_route("/v1/new", lambda: reached.append("changed"), methods=[method], name=method)
    reader, submitter = make_key(store, Scope.READ), make_key(store, Scope.SUBMIT)
    assert client.get("/v1/new").status_code == 401
    assert client.get("/v1/new", headers=bearer(reader)).status_code == 200
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert_problem(client.request(method, "/v1/new", headers=bearer(reader)), 403, "scope-missing")
    assert reached == ["looked"]
    assert client.post("/v1/new", headers=bearer(submitter)).status_code == 200
    assert reached == ["looked", "changed"]


def test_a_reader_changes_nothing_on_any_route(client: Client, store: Store) -> None:
    key = make_key(store, Scope.READ)
    changing = [(method, path) for method, path in routes(client.app) if method not in ("GET", "HEAD")]
    assert changing
    for method, path in changing:
        if path not in ("/login", "/logout"):
            assert_problem(client.request(method, path, headers=bearer(key)), 403, "scope-missing")


def test_keys_and_the_trail_are_for_administrators(client: Client, store: Store) -> None:
    key = make_key(store, Scope.SUBMIT)
    assert client.post("/v1/sweeps", json=MATRIX, headers=bearer(key)).status_code == 201
    for method, path in routes(client.app):
        if path.startswith(("/v1/keys", "/v1/audit")):
            assert_problem(client.request(method, path, json={}, headers=bearer(key)), 403, "scope-missing")


def test_what_is_no_key_opens_nothing(client: Client, store: Store) -> None:
    key = make_key(store)
    other = key[:-1] + ("A" if key[-1] != "A" else "B")
    for header in (
        "",
        "Bearer",
        "Bearer ",
        f"Basic {key}",
        key,
        f"Bearer {other}",
        f"Bearer sp_000000000000_{key[-43:]}",
    ):
        response = client.get("/v1/sweeps", headers={"Authorization": header})
        problem = assert_problem(response, 401, "key-needed")
        assert key[-43:] not in str(problem)
    assert client.get("/v1/sweeps", headers={"Authorization": f"bearer  {key} "}).status_code == 200


def test_a_key_that_expired_or_was_revoked_opens_nothing(client: Client, store: Store) -> None:
    brief = make_key(store, life=timedelta(hours=1))
    later = datetime.now(UTC) + timedelta(hours=2)
    keyring = Keyring(store, now=lambda: later)
    client.app.state.keyring._now = keyring._now
    assert "expired" in assert_problem(client.get("/v1/sweeps", headers=bearer(brief)), 401, "key-needed")["detail"]
    lasting = make_key(store)
    assert client.get("/v1/sweeps", headers=bearer(lasting)).status_code == 200
    keyring.revoke(lasting.split("_")[1])
    assert "revoked" in assert_problem(client.get("/v1/sweeps", headers=bearer(lasting)), 401, "key-needed")["detail"]


def test_revoking_every_key_does_not_open_the_door(client: Client, store: Store) -> None:
    key = make_key(store)
    Keyring(store).revoke(key.split("_")[1])
    assert client.get("/v1/sweeps").status_code == 401


def test_health_needs_no_key_and_metrics_only_if_they_are_said_to(store: Store) -> None:
    make_key(store)
    assert make_client(store).get("/healthz").status_code == 200
    assert make_client(store).get("/metrics").status_code == 401
    assert make_client(store, metrics_need_key=False).get("/metrics").status_code != 401


def test_the_prefix_of_the_server_changes_nothing(store: Store) -> None:
    make_key(store)
    client = make_client(store, root_path="/deep/prefix")
    assert client.get("/deep/prefix/healthz").status_code == 200
    assert client.get("/deep/prefix/v1/sweeps").status_code == 401


def test_a_last_use_is_noted(client: Client, store: Store) -> None:
    key = make_key(store)
    shown = client.get(f"/v1/keys/{key.split('_')[1]}", headers=bearer(key)).json()
    assert shown["last_used_at"] is not None


def test_a_key_is_limited_and_others_are_not(store: Store) -> None:
    client = make_client(store, rate_limit_per_minute=3)
    first, second = make_key(store), make_key(store)
    for _ in range(3):
        assert client.get("/v1/sweeps", headers=bearer(first)).status_code == 200
    response = client.get("/v1/sweeps", headers=bearer(first))
    assert_problem(response, 429, "rate-limited")
    assert 1 <= int(response.headers["Retry-After"]) <= 21
    assert client.get("/v1/sweeps", headers=bearer(second)).status_code == 200
    assert client.get("/healthz").status_code == 200


def test_who_tries_keys_is_slowed_down(client: Client, store: Store) -> None:
    key = make_key(store)
    codes = [client.get("/v1/sweeps", headers=bearer("sp_x")).status_code for _ in range(130)]
    assert codes[0] == 401
    assert codes[-1] == 429
    assert client.get("/v1/sweeps", headers=bearer(key)).status_code == 200


def test_a_limit_of_zero_is_none(store: Store) -> None:
    client = make_client(store, rate_limit_per_minute=0)
    key = make_key(store)
    assert {client.get("/healthz", headers=bearer(key)).status_code for _ in range(50)} == {200}


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_page_from_elsewhere_changes_nothing(client: Client, headers: dict[str, str]) -> None:
    assert_problem(client.post("/v1/sweeps", json=MATRIX, headers=headers), 403, "cross-site")
    assert client.get("/v1/sweeps", headers=headers).json()["sweeps"] == []
    own = {"Origin": "http://shardproof", "Sec-Fetch-Site": "same-origin"}
    assert client.post("/v1/sweeps", json=MATRIX, headers=own).status_code == 201


def test_a_key_in_the_request_is_not_a_browser_s_doing(client: Client, store: Store) -> None:
    key = make_key(store)
    headers = bearer(key) | {"Origin": "http://ci.example"}
    assert client.post("/v1/sweeps", json=MATRIX, headers=headers).status_code == 201


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8910", "127.0.0.1.nip.io"])
def test_without_keys_a_name_that_was_bent_to_loopback_is_refused(client: Client, store: Store, host: str) -> None:
    assert_problem(client.get("/v1/sweeps", headers={"Host": host}), 403, "foreign-host")
    for own in ("127.0.0.1:8910", "localhost", "[::1]:8910"):
        assert client.get("/v1/sweeps", headers={"Host": own}).status_code == 200
    key = make_key(store)
    assert client.get("/v1/sweeps", headers={"Host": host} | bearer(key)).status_code == 200


def test_a_nul_is_refused_before_it_reaches_a_database(client: Client) -> None:
    for path in ("/v1/sweeps/a%00b", "/v1/sweeps?before=%00", "/sweeps/%00"):
        assert_problem(client.get(path), 400, "malformed-request")


def test_a_body_is_limited_on_every_route(store: Store) -> None:
    client = make_client(store, body_limit_bytes=100)
    for method, path in routes(client.app):
        if method != "GET":
            response = client.request(method, path, content=b"x" * 101)
            assert_problem(response, 413, "body-too-large")


def test_a_parameter_that_no_route_reads_is_told(client: Client, store: Store) -> None:
    add_sweep(store)
    problem = assert_problem(client.get("/v1/sweeps?limt=5"), 422, "invalid-request")
    assert [(item["path"], item["code"]) for item in problem["errors"]] == [("query.limt", "unknown-parameter")]
    assert "limit" in problem["errors"][0]["detail"]
    assert_problem(client.post("/v1/sweeps?dry=1", json=MATRIX), 422, "invalid-request")
    assert len(client.get("/v1/sweeps").json()["sweeps"]) == 1


def test_openapi_says_where_a_key_is_needed(client: Client) -> None:
    description = client.get("/openapi.json").json()
    assert description["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    assert description["security"] == [{"key": []}]
    assert description["paths"]["/healthz"]["get"]["security"] == []
    assert "security" not in description["paths"]["/v1/sweeps"]["get"]
