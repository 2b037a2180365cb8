"""Series over REST: read in pages and as CSV, and what people set on them."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from store.nights import add_night, add_nights, night, series, sweep_of

from api.client import Client
from api.keyed import bearer, make_key
from service.domain.keys import Scope
from service.domain.notices import NoticeKind
from service.store import Store, repositories
from service.store.series_records import NewNotice

STEP = [20.0, 20.2, 19.8, 20.1, 19.9, 20.0, 20.2, 24.0, 24.2]


def points(client: Client, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"/v1/series/s1/points{query}").json()["points"]
    return found


def test_series_are_listed_in_pages_and_found_by_their_name(client: Client, store: Store) -> None:
    for number, name in enumerate(("a", "b", "c")):
        add_night(store, 0, {"cold_s": 1.0}, series(f"s{number}", name), cell=f"c{number}")
    page = client.get("/v1/series?limit=2").json()
    rest = client.get(f"/v1/series?limit=2&after={page['next']}").json()
    assert [item["name"] for item in page["series"] + rest["series"]] == ["a", "b", "c"]
    assert rest["next"] is None
    assert [item["id"] for item in client.get("/v1/series?text=B").json()["series"]] == ["s1"]
    assert client.get("/v1/series?pinned=true").json()["series"] == []


def test_a_series_shows_how_it_stands(client: Client, store: Store) -> None:
    add_nights(store, STEP)
    found = client.get("/v1/series/s1").json()
    standing = found["figures"]["cold_s"]["standing"]
    assert (standing["state"], standing["baseline"], standing["since_sweep_id"]) == ("regression", 20.0, sweep_of(7))
    assert found["series"]["settings"] == {"tensor_parallel_size": 2}


def test_points_come_in_pages_and_within_times(client: Client, store: Store) -> None:
    for number, cold in enumerate(STEP):
        add_night(store, number, {"cold_s": cold, "warm_s": 5.0})
    every = points(client)
    assert len(every) == 2 * len(STEP)
    paged: list[dict[str, Any]] = []
    after = ""
    while True:
        page = client.get(f"/v1/series/s1/points?limit=5{after}").json()
        paged += page["points"]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert paged == every
    until = night(2).isoformat().replace("+00:00", "Z")
    assert [item["value"] for item in points(client, f"?figure=cold_s&until={until}")] == STEP[:2]
    assert len(points(client, f"?figure=cold_s&figure=warm_s&since={until}")) == 2 * len(STEP) - 4


def test_the_csv_has_the_same_points(client: Client, store: Store) -> None:
    add_nights(store, STEP)
    answer = client.get("/v1/series/s1/points.csv")
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [float(row["value"]) for row in rows] == STEP
    assert rows[0]["vllm"] == "0.30.0"
    assert datetime.fromisoformat(rows[0]["at"]) == night(0)
    assert client.get("/v1/series/nope/points.csv").json()["code"] == "unknown-series"


def test_a_baseline_is_accepted_with_a_reason_and_who_did_it(client: Client, store: Store) -> None:
    add_nights(store, STEP)
    key = make_key(store, Scope.SUBMIT, "ann")
    step = client.get("/v1/series/s1/points", headers=bearer(key)).json()["points"][7]["id"]
    body = {"figure": "cold_s", "point": step, "reason": "new compiler"}
    made = client.post("/v1/series/s1/baseline", json=body, headers=bearer(key))
    assert made.status_code == 201
    assert (made.json()["author"], made.json()["value"]) == ("ann", 24.0)
    found = client.get("/v1/series/s1", headers=bearer(key)).json()["figures"]["cold_s"]
    assert found["accepted"] == made.json()
    assert (found["standing"]["state"], found["standing"]["missing"]) == ("too-little-data", 3)


def test_a_series_is_muted_until_a_time_and_pinned(client: Client, store: Store) -> None:
    add_nights(store, STEP)
    until = (datetime.now(UTC) + timedelta(days=7)).isoformat()
    made = client.post("/v1/series/s1/mute", json={"until": until, "reason": "known"})
    assert (made.status_code, made.json()["author"]) == (201, "local user")
    found = client.get("/v1/series/s1").json()
    assert datetime.fromisoformat(found["muted_until"]) == datetime.fromisoformat(until)
    assert client.post("/v1/series/s1/pin", json={"pinned": True}).json()["pinned"] is True
    assert [item["id"] for item in client.get("/v1/series?pinned=true").json()["series"]] == ["s1"]


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("s1/baseline", {"figure": "cold_s", "point": 9999, "reason": "x"}, 404, "unknown-point"),
        ("nope/baseline", {"figure": "cold_s", "point": 1, "reason": "x"}, 404, "unknown-series"),
        ("s1/baseline", {"figure": "warm_s", "point": 1, "reason": "x"}, 409, "no-baseline"),
        ("s1/baseline", {"figure": "rank_spread_s", "point": 1, "reason": "x"}, 409, "no-baseline"),
        ("s1/baseline", {"figure": "cold_s", "point": 1, "reason": ""}, 422, "invalid-request"),
        ("s1/baseline", {"figure": "cold_s", "point": 1, "reason": "\n"}, 422, "invalid-request"),
        ("s1/baseline", {"figure": "cold_s", "point": 1, "reason": "x", "author": "me"}, 422, "invalid-request"),
        ("s1/mute", {"until": "2026-12-01T00:00:00", "reason": "no zone"}, 422, "invalid-request"),
        ("s1/mute", {"until": "0001-01-01T00:00:00+14:00", "reason": "before all time"}, 422, "invalid-request"),
        ("s1/mute", {"until": "2026-12-01T00:00:00Z"}, 422, "invalid-request"),
        ("nope/pin", {"pinned": True}, 404, "unknown-series"),
        ("s1/pin", {}, 422, "invalid-request"),
    ],
)
def test_what_cannot_be_set_is_refused(
    client: Client, store: Store, path: str, body: dict[str, Any], status: int, code: str
) -> None:
    add_nights(store, [20.0])
    answer = client.post(f"/v1/series/{path}", json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("series?after=nope", "invalid-cursor"),
        ("series/nope", "unknown-series"),
        ("series/nope/points", "unknown-series"),
        ("series/s1/points?after=nope", "invalid-cursor"),
        ("series/s1/points?since=2026-11-01", "invalid-request"),
        ("series/s1/points?since=0001-01-01T00:00:00%2B14:00", "invalid-request"),
        ("series/s1/points?limit=100000", "invalid-request"),
        ("notices?kind=rumour", "invalid-request"),
        ("notices?before=0", "invalid-request"),
    ],
)
def test_what_cannot_be_read_is_refused(client: Client, store: Store, query: str, code: str) -> None:
    add_nights(store, [20.0])
    assert client.get(f"/v1/{query}").json()["code"] == code


def test_looking_needs_the_scope_read_and_setting_the_scope_submit(client: Client, store: Store) -> None:
    add_nights(store, [20.0])
    reader = make_key(store, Scope.READ)
    assert client.get("/v1/series/s1", headers=bearer(reader)).status_code == 200
    assert client.post("/v1/series/s1/pin", json={"pinned": True}, headers=bearer(reader)).status_code == 403
    assert client.get("/v1/notices").status_code == 401


def test_notices_come_newest_first_in_pages(client: Client, store: Store) -> None:
    add_nights(store, [20.0])
    with store.transaction() as session:
        for number, kind in enumerate((NoticeKind.REGRESSION, NoticeKind.HANG, NoticeKind.REGRESSION)):
            notice = NewNotice(night(number), kind, "s1", None, sweep_of(number), "c0", f"notice {number}")
            repositories.outcomes.add_notice(session, notice)
    page = client.get("/v1/notices?limit=2").json()
    rest = client.get(f"/v1/notices?limit=2&before={page['next']}").json()
    assert [item["what"] for item in page["notices"] + rest["notices"]] == ["notice 2", "notice 1", "notice 0"]
    assert [item["what"] for item in client.get("/v1/notices?kind=hang").json()["notices"]] == ["notice 1"]
    assert client.get("/v1/notices?series=other").json()["notices"] == []
