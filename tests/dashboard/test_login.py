"""A browser shows a key once, and from then on nobody else's page can act for it."""

from __future__ import annotations

import re
from urllib.parse import urljoin

import httpx
import pytest
from api.client import Client, make_client
from api.keyed import bearer, make_key
from api.test_problems import assert_problem

from dashboard.page import Page
from service.api.guard import COOKIE
from service.domain.keys import Scope
from service.keyring import Keyring, csrf_token
from service.store import Store

HTML = {"Accept": "text/html"}
OWN = {"Origin": "http://shardproof"}


def log_in(client: Client, key: str, next: str = "", prefix: str = "") -> httpx.Response:
    return client.post(f"{prefix}/login", data={"key": key, "next": next}, headers=OWN)


def session(client: Client, key: str) -> dict[str, str]:
    response = log_in(client, key)
    assert response.status_code == 303, response.text
    return {"Cookie": f"{COOKIE}={token_in(response)}"}


def token_in(response: httpx.Response) -> str:
    found = re.match(rf"{COOKIE}=([^;]+)", response.headers["Set-Cookie"])
    assert found
    return found[1]


def test_a_page_without_a_session_leads_to_the_form_and_back(client: Client, store: Store) -> None:
    key = make_key(store)
    response = client.get("/sweeps/a b", headers=HTML)
    assert (response.status_code, response.headers["Location"]) == (303, "/login?next=/sweeps/a%20b")
    form = Page(client.get(response.headers["Location"]).text)
    fields = {field["name"]: field.get("value") for field in form.named("input")}
    assert fields == {"key": None, "next": "/sweeps/a b"}
    assert log_in(client, key, str(fields["next"])).headers["Location"] == "/sweeps/a%20b"


def test_what_was_chosen_on_the_page_is_still_there_after_logging_in(client: Client, store: Store) -> None:
    key = make_key(store)
    asked = "/sweeps/x?value=dtype%3D%22a+b%22&changed=1"
    response = client.get(asked, headers=HTML)
    fields = Page(client.get(response.headers["Location"]).text).named("input")
    (where,) = [str(field["value"]) for field in fields if field["name"] == "next"]
    assert log_in(client, key, where).headers["Location"] == asked


@pytest.mark.parametrize("where", ["//evil.example?a", "/\\evil.example?//b", "?next=//evil.example", "/a?b\r\nX: y"])
def test_no_query_leads_elsewhere(client: Client, store: Store, where: str) -> None:
    location = log_in(client, make_key(store), where).headers["Location"]
    assert location.startswith("/")
    assert not location.startswith(("//", "/\\"))
    assert "\n" not in location


def test_programs_are_told_in_a_problem_document(client: Client, store: Store) -> None:
    make_key(store)
    assert_problem(client.get("/"), 401, "key-needed")
    assert_problem(client.get("/v1/sweeps", headers=HTML), 401, "key-needed")


def test_a_session_opens_pages_and_the_api(client: Client, store: Store) -> None:
    cookie = session(client, make_key(store, Scope.READ))
    assert client.get("/", headers=cookie).status_code == 200
    assert client.get("/v1/sweeps", headers=cookie).status_code == 200
    assert client.get("/", headers={"Cookie": f"{COOKIE}=wrong"}).status_code == 401


@pytest.mark.parametrize(("scheme", "secure"), [("http", False), ("https", True)])
def test_the_cookie_is_for_this_site_and_no_script(client: Client, store: Store, scheme: str, secure: bool) -> None:
    key = make_key(store)
    response = client.request(
        "POST", f"{scheme}://shardproof/login", data={"key": key}, headers={"Origin": f"{scheme}://shardproof"}
    )
    cookie = response.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Path=/" in cookie
    assert ("Secure" in cookie) == secure
    assert key[-43:] not in cookie


@pytest.mark.parametrize(
    "where", ["//evil.example", "/\\evil.example", "https://evil.example", "\\\\evil", "/%2f%2fevil"]
)
def test_the_form_leads_nowhere_else(client: Client, store: Store, where: str) -> None:
    location = log_in(client, make_key(store), where).headers["Location"]
    assert urljoin("http://shardproof/login", location).startswith("http://shardproof/")
    assert "\\" not in location


@pytest.mark.parametrize("key", ["", "nonsense", "sp_000000000000_" + "x" * 43])
def test_a_key_that_opens_nothing_is_refused_on_the_page(client: Client, store: Store, key: str) -> None:
    make_key(store)
    response = log_in(client, key)
    assert response.status_code == 403
    assert "Set-Cookie" not in response.headers
    assert Page(response.text).named("form")
    assert "x" * 43 not in response.text


def test_logging_in_from_a_page_of_somebody_else_is_refused(client: Client, store: Store) -> None:
    key = make_key(store)
    response = client.post("/login", data={"key": key}, headers={"Origin": "http://evil.example"})
    assert_problem(response, 403, "cross-site")


def test_a_change_needs_what_only_pages_of_the_session_know(client: Client, store: Store) -> None:
    cookie = session(client, make_key(store))
    token = csrf_token(cookie["Cookie"].partition("=")[2])
    matrix = {"json": {"name": "x"}}
    for wrong in ({}, {"X-CSRF-Token": "wrong"}, {"X-CSRF-Token": csrf_token("another session")}):
        assert_problem(client.post("/v1/sweeps", headers=cookie | OWN | wrong, **matrix), 403, "csrf")
    right = {"X-CSRF-Token": token}
    foreign = {"Origin": "http://evil.example"}
    assert_problem(client.post("/v1/sweeps", headers=cookie | right | foreign, **matrix), 403, "cross-site")
    assert client.post("/v1/sweeps", headers=cookie | right | OWN, **matrix).status_code == 201


def test_logging_out_is_a_form_of_the_page_and_ends_the_session(client: Client, store: Store) -> None:
    cookie = session(client, make_key(store, Scope.READ))
    page = Page(client.get("/", headers=cookie).text)
    (field,) = [item for item in page.named("input") if item["name"] == "csrf"]
    assert_problem(client.post("/logout", data={"csrf": "wrong"}, headers=cookie | OWN), 403, "csrf")
    assert client.get("/", headers=cookie).status_code == 200
    response = client.post("/logout", data={"csrf": field["value"]}, headers=cookie | OWN)
    assert (response.status_code, response.headers["Location"]) == (303, "/login")
    assert client.get("/", headers=cookie).status_code == 401


def test_revoking_a_key_ends_its_sessions(client: Client, store: Store) -> None:
    key = make_key(store)
    cookie = session(client, key)
    Keyring(store).revoke(key.split("_")[1])
    assert client.get("/", headers=cookie).status_code == 401


def test_a_header_counts_before_a_cookie(client: Client, store: Store) -> None:
    cookie = session(client, make_key(store))
    assert client.get("/v1/sweeps", headers=cookie | bearer("sp_wrong")).status_code == 401


def test_without_keys_no_page_offers_to_log_out(client: Client) -> None:
    assert Page(client.get("/").text).named("form") == []


def test_sessions_work_under_a_prefix(store: Store) -> None:
    client = make_client(store, root_path="/deep")
    response = log_in(client, make_key(store), "/sweeps/x", "/deep")
    assert response.headers["Location"] == "/deep/sweeps/x"
    assert "Path=/deep/" in response.headers["Set-Cookie"]
    assert client.get("/deep/", headers=HTML).headers["Location"].startswith("/deep/login")
