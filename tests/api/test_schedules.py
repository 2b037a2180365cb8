"""Schedules over REST."""

from __future__ import annotations

from typing import Any

import pytest

from api.client import Client, StoringController, make_client
from api.keyed import bearer, make_key
from api.test_problems import assert_problem
from service.domain.keys import Scope
from service.store import Store

NIGHTLY: dict[str, Any] = {
    "name": "nightly",
    "cron": "30 2 * * mon-fri",
    "timezone": "Europe/Berlin",
    "missed": "once",
    "matrix": {"name": "nightly", "engine": {"model": "tiny:llama"}},
}

OTHER: dict[str, Any] = {"name": "other", "engine": {"model": "tiny:llama"}}


def add(client: Client, **fields: Any) -> dict[str, Any]:
    response = client.post("/v1/schedules", json=NIGHTLY | fields)
    assert response.status_code == 201, response.text
    return dict(response.json())


def if_match(tag: str) -> dict[str, str]:
    return {"If-Match": tag}


def test_a_schedule_is_created_and_read_back(client: Client) -> None:
    response = client.post("/v1/schedules", json=NIGHTLY)
    assert response.status_code == 201
    assert response.headers["Location"] == "/v1/schedules/nightly"
    read = client.get(response.headers["Location"])
    assert read.headers["ETag"] == response.headers["ETag"] == '"1"'
    assert read.json() == response.json()
    assert {key: read.json()[key] for key in NIGHTLY} == NIGHTLY
    assert read.json()["next_at"] is not None


def test_a_schedule_sets_no_more_than_a_submitted_matrix_may(client: Client) -> None:
    """Else whoever may submit could have at night what is refused by day."""
    code = {"name": "nightly", "engine": {"model": "tiny:llama", "trust_remote_code": True}}
    assert_problem(client.post("/v1/schedules", json=NIGHTLY | {"matrix": code}), 422, "invalid-matrix")
    add(client)
    changed = client.patch("/v1/schedules/nightly", json={"matrix": code}, headers=if_match('"1"'))
    assert_problem(changed, 422, "invalid-matrix")
    assert client.get("/v1/schedules/nightly").json()["matrix"] == NIGHTLY["matrix"]


def test_only_what_is_needed_has_to_be_written(client: Client) -> None:
    least = {key: NIGHTLY[key] for key in ("name", "cron", "matrix")}
    found = client.post("/v1/schedules", json=least).json()
    assert (found["timezone"], found["missed"], found["suspended"]) == ("UTC", "skip", False)


def test_schedules_are_listed_page_by_page_without_matrices(client: Client) -> None:
    for name in ("c", "a", "b"):
        add(client, name=name)
    first = client.get("/v1/schedules?limit=2").json()
    rest = client.get(f"/v1/schedules?limit=2&after={first['next']}").json()
    assert [item["name"] for item in first["schedules"] + rest["schedules"]] == ["a", "b", "c"]
    assert rest["next"] is None
    assert "matrix" not in first["schedules"][0]


def test_suspend_resume_and_change(client: Client) -> None:
    add(client)
    suspended = client.patch("/v1/schedules/nightly", json={"suspended": True}, headers=if_match('"1"'))
    assert (suspended.status_code, suspended.headers["ETag"]) == (200, '"2"')
    assert (suspended.json()["suspended"], suspended.json()["next_at"]) == (True, None)
    changes = {"suspended": False, "cron": "0 4 * * *", "matrix": OTHER}
    resumed = client.patch("/v1/schedules/nightly", json=changes, headers=if_match('"2"')).json()
    assert resumed["next_at"] is not None
    assert (resumed["cron"], resumed["matrix"], resumed["missed"]) == ("0 4 * * *", OTHER, "once")


def test_of_two_who_change_the_second_reads_again(client: Client) -> None:
    add(client)
    assert client.patch("/v1/schedules/nightly", json={"missed": "skip"}, headers=if_match('"1"')).status_code == 200
    late = client.patch("/v1/schedules/nightly", json={"suspended": True}, headers=if_match('"1"'))
    assert_problem(late, 412, "changed-since")
    assert_problem(client.delete("/v1/schedules/nightly", headers=if_match('"1"')), 412, "changed-since")
    assert client.get("/v1/schedules/nightly").json()["suspended"] is False


@pytest.mark.parametrize("tag", ["*", '"x"', "W/1x", '"-1"', '"99999999999999999999"', "²"])
def test_what_is_no_tag_of_ours_matches_nothing(client: Client, tag: str) -> None:
    add(client)
    response = client.patch("/v1/schedules/nightly", json={"suspended": True}, headers=[(b"If-Match", tag.encode())])
    assert_problem(response, 412, "changed-since")


def test_without_a_tag_nothing_is_changed(client: Client) -> None:
    add(client)
    assert_problem(client.patch("/v1/schedules/nightly", json={"suspended": True}), 428, "if-match-needed")
    assert_problem(client.delete("/v1/schedules/nightly"), 428, "if-match-needed")


def test_a_schedule_is_deleted_and_its_sweeps_stay(client: Client) -> None:
    add(client)
    sweep = client.post("/v1/schedules/nightly/fires").json()["sweep_id"]
    deleted = client.delete("/v1/schedules/nightly", headers=if_match('"1"'))
    assert (deleted.status_code, deleted.json()["matrix"]) == (200, NIGHTLY["matrix"])
    assert_problem(client.get("/v1/schedules/nightly"), 404, "unknown-schedule")
    assert client.get(f"/v1/sweeps/{sweep}").status_code == 200


def test_it_fires_when_somebody_asks(client: Client, controller: StoringController) -> None:
    add(client, suspended=True)
    fired = client.post("/v1/schedules/nightly/fires")
    assert fired.status_code == 201
    assert (fired.json()["cause"], fired.json()["state"], fired.json()["due_at"]) == ("asked", "submitted", None)
    assert controller.documents[0].tree == NIGHTLY["matrix"]
    again = client.post("/v1/schedules/nightly/fires")
    first = client.get("/v1/schedules/nightly/fires?limit=1").json()
    rest = client.get(f"/v1/schedules/nightly/fires?limit=1&before={first['next']}").json()
    assert [item["sweep_id"] for item in first["fires"] + rest["fires"]] == [
        again.json()["sweep_id"],
        fired.json()["sweep_id"],
    ]
    assert client.get(f"/v1/sweeps/{again.json()['sweep_id']}").status_code == 200
    assert rest["next"] is None


def test_what_goes_wrong_when_it_fires_is_said(client: Client) -> None:
    add(client, matrix={**NIGHTLY["matrix"], "name": "explode"})
    fired = client.post("/v1/schedules/nightly/fires").json()
    assert (fired["state"], fired["sweep_id"]) == ("failed", None)
    assert "RuntimeError" in fired["detail"]


def test_a_matrix_that_cannot_be_used_is_refused_by_day(client: Client) -> None:
    """Not at night, when it fires for the first time."""
    unknown = {"name": "nightly", "engine": {"model": "tiny:llama", "tensor_paralel_size": 2}}
    problem = assert_problem(client.post("/v1/schedules", json=NIGHTLY | {"matrix": unknown}), 422, "invalid-matrix")
    assert [item["path"] for item in problem["errors"]] == ["engine.tensor_paralel_size"]
    assert client.get("/v1/schedules").json()["schedules"] == []
    add(client)
    changed = client.patch("/v1/schedules/nightly", json={"matrix": unknown}, headers=if_match('"1"'))
    assert_problem(changed, 422, "invalid-matrix")
    assert client.get("/v1/schedules/nightly").json()["matrix"] == NIGHTLY["matrix"]


def test_a_schedule_has_the_key_of_who_made_it(store: Store, controller: StoringController) -> None:
    client = make_client(store, controller)
    headers = bearer(make_key(store, scope=Scope.SUBMIT))
    made = client.post("/v1/schedules", json=NIGHTLY, headers=headers)
    assert made.status_code == 201, made.text
    assert made.json()["key_id"] is not None
    other = bearer(make_key(store, scope=Scope.SUBMIT))
    assert client.post("/v1/schedules/nightly/fires", headers=other).status_code == 201
    assert [terms["key_id"] for terms in controller.terms] == [made.json()["key_id"]]


def test_names_are_taken_once(client: Client) -> None:
    add(client)
    assert_problem(client.post("/v1/schedules", json=NIGHTLY), 409, "name-taken")


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"cron": "61 2 * * *"}, "body.cron"),
        ({"cron": 5}, "body.cron"),
        ({"cron": "0 0 30 2 *"}, "body.cron"),
        ({"timezone": "Mars/Olympus"}, "body.timezone"),
        ({"timezone": None}, "body.timezone"),
        ({"missed": "twice"}, "body.missed"),
        ({"suspended": "yes"}, "body.suspended"),
        ({"name": "a/b"}, "body.name"),
        ({"name": "a\n"}, "body.name"),
        ({"name": ""}, "body.name"),
        ({"matrix": []}, "body.matrix"),
        ({"crn": "0 0 * * *"}, "body.crn"),
    ],
)
def test_fields_that_cannot_be_used_are_named(client: Client, fields: dict[str, Any], wrong: str) -> None:
    problem = assert_problem(client.post("/v1/schedules", json=NIGHTLY | fields), 422, "invalid-request")
    assert [item["path"] for item in problem["errors"]] == [wrong]
    assert client.get("/v1/schedules").json()["schedules"] == []


@pytest.mark.parametrize("path", ["cron", "timezone"])
def test_a_change_to_what_cannot_be_changes_nothing(client: Client, path: str) -> None:
    before = add(client)
    response = client.patch("/v1/schedules/nightly", json={path: "never"}, headers=if_match('"1"'))
    problem = assert_problem(response, 422, "invalid-request")
    assert [item["path"] for item in problem["errors"]] == [f"body.{path}"]
    assert client.get("/v1/schedules/nightly").json() == before


@pytest.mark.parametrize(
    ("content", "media_type", "status", "code"),
    [
        (b"{", "application/json", 400, "malformed-json"),
        (b"[]", "application/json", 422, "invalid-request"),
        (b"3", "application/json", 422, "invalid-request"),
        (b"\xff", "application/json", 400, "not-utf-8"),
        (b"name: x", "application/yaml", 415, "unsupported-media-type"),
        (b'{"name": "n", "cron": "0 0 * * *", "matrix": {"a": NaN}}', "application/json", 422, "invalid-matrix"),
    ],
)
def test_bodies_that_are_no_schedule(client: Client, content: bytes, media_type: str, status: int, code: str) -> None:
    response = client.post("/v1/schedules", content=content, headers={"Content-Type": media_type})
    assert_problem(response, status, code)


def test_a_body_that_is_too_large_or_too_deep(store: Store) -> None:
    client = make_client(store, body_limit_bytes=5000)
    big = client.post("/v1/schedules", json=NIGHTLY | {"matrix": {"name": "x" * 6000}})
    assert_problem(big, 413, "body-too-large")
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"a": deep}
    assert_problem(client.post("/v1/schedules", json=NIGHTLY | {"matrix": deep}), 422, "invalid-matrix")


@pytest.mark.parametrize("path", ["", "/fires"])
def test_a_schedule_that_is_not_there(client: Client, path: str) -> None:
    assert_problem(client.get(f"/v1/schedules/nope{path}"), 404, "unknown-schedule")
    if path:
        assert_problem(client.post(f"/v1/schedules/nope{path}"), 404, "unknown-schedule")
    else:
        missing = client.patch("/v1/schedules/nope", json={"suspended": True}, headers=if_match('"1"'))
        assert_problem(missing, 404, "unknown-schedule")


def test_the_description_has_the_fields_and_an_example(client: Client) -> None:
    operation = client.get("/openapi.json").json()["paths"]["/v1/schedules"]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    assert schema["properties"].keys() == {"name", "cron", "timezone", "missed", "suspended", "matrix"}
    assert "$defs" not in schema
    example = schema["examples"][0]
    assert client.post("/v1/schedules", json=example).status_code == 201
