"""Series by their pages: a list that is searched, a history with its chart and table, and what people say of it."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urljoin

import pytest
from api.client import Client, make_client
from api.keyed import make_key
from api.test_problems import assert_problem
from store.nights import add_night, add_nights, night, series, sweep_of
from store.samples import add_sweep

from dashboard.page import Page
from dashboard.test_login import OWN, session
from service.domain.keys import Scope
from service.domain.verdict import Verdict
from service.store import Store, repositories
from service.store.repositories import trends
from service.store.series_records import SeriesState

HOSTILE = "<script>alert('x')</script>"
STEADY = [20.0, 20.2, 19.9, 20.1, 20.0, 19.8, 20.1, 20.0]
NEWER = {"vllm": "0.31.0", "torch": "2.10.0"}


@pytest.fixture
def slower(client: Client, store: Store) -> Client:
    """Eight steady nights, a crash, and two that are a quarter slower with another vLLM."""
    add_nights(store, STEADY)
    add_night(store, 8, {}, verdict=Verdict.CRASHED)
    for number in (9, 10):
        add_night(store, number, {"cold_s": 25.0, "warm_s": 6.0, "cold.dynamo": 3.0}, versions=NEWER)
    return client


def page_of(client: Client, query: str = "", **options: Any) -> Page:
    response = client.get(f"/trends/s1{query}", **options)
    assert response.status_code == 200, response.text
    return Page(response.text)


def test_the_list_is_searched_and_goes_on(client: Client, store: Store) -> None:
    assert "No series here" in Page(client.get("/trends/").text).text
    for number in range(52):
        add_night(store, 0, {"cold_s": 1.0}, of=series(f"id-{number:02}", f"name {number:02}"), cell=f"c{number}")
    first = Page(client.get("/trends/").text)
    assert "name 49 2026-11-01 02:30:00 UTC ✓ pass default cpu, 2 cores tensor_parallel_size: 2" in first.text
    assert "?after=id-49" in first.attributes("href")
    second = Page(client.get("/trends/?after=id-49").text)
    assert [link for link in second.attributes("href") if link.startswith("id-")] == ["id-50", "id-51"]
    found = Page(client.get("/trends/?q=ME 5").text)
    assert [link for link in found.attributes("href") if link.startswith("id-")] == ["id-50", "id-51"]
    assert "No series holds “nothing”" in Page(client.get("/trends/?q=nothing").text).text


def test_a_series_shows_its_nights_without_a_script(slower: Client) -> None:
    page = page_of(slower)
    # Ten nights of cold starts and two of warm ones, each a dot that leads to its cell.
    dots = [link for link in page.attributes("href") if "/cells/" in link]
    assert dots.count(f"../sweeps/{sweep_of(9)}/cells/c0") == 2 + 1
    assert dots.count(f"../sweeps/{sweep_of(0)}/cells/c0") == 1 + 1
    assert "vllm 0.30.0 → 0.31.0" in page.text
    assert "✗ regression 25.0 s 20.0 s" in page.text
    assert "since 2026-11-10 02:30 UTC, sweep sweep-009" in page.text
    assert "✗ crashed — — —" in page.text
    assert "25.0 s (24.8 s to 25.5 s) 6.00 s (5.94 s to 6.12 s) vllm 0.30.0 → 0.31.0" in page.text


def test_a_night_without_an_environment_is_no_change_of_versions(client: Client, store: Store) -> None:
    add_nights(store, STEADY[:2])
    add_night(store, 2, {}, verdict=Verdict.UNSUPPORTED, versions={})
    add_night(store, 3, {"cold_s": 20.0})
    page = page_of(client)
    assert "unsupported —" in page.text
    assert "→" not in page.text
    add_night(store, 4, {"cold_s": 20.0}, versions=NEWER)
    assert "vllm 0.30.0 → 0.31.0" in page_of(client).text


def test_too_little_data_is_said(client: Client, store: Store) -> None:
    add_nights(store, STEADY[:2])
    assert "… too little data" in page_of(client).text
    assert "3 nights are missing until something can be said" in page_of(client).text


def test_figures_stretch_and_scale_are_in_the_address(slower: Client) -> None:
    page = page_of(slower, "?figure=cold.dynamo&since=2026-11-10&until=2026-11-30&scale=log")
    boxes = [item for item in page.named("input") if item.get("type") == "checkbox"]
    assert {item["value"] for item in boxes if "checked" in item} == {"cold.dynamo"}
    dates = [(item["name"], item.get("value")) for item in page.named("input") if item.get("type") == "date"]
    assert dates[:2] == [("since", "2026-11-10"), ("until", "2026-11-30")]
    assert len([link for link in page.attributes("href") if "/cells/" in link]) == 2 + 2
    assert "logarithmic" in str(page.named("svg")[0]["aria-label"])
    assert any("since=2026-10-12" in link and "figure=cold.dynamo" in link for link in page.attributes("href"))


@pytest.mark.parametrize("query", ["?figure=nope", "?since=soon", "?scale=cubic", "?since=2026-11-02&until=2026-11-01"])
def test_what_cannot_be_used_of_an_address_is_said(slower: Client, query: str) -> None:
    response = slower.get(f"/trends/s1{query}")
    assert response.status_code == 422
    assert 'class="error"' in response.text


def test_a_stretch_without_a_night_says_so(slower: Client) -> None:
    page = page_of(slower, "?since=2030-01-01")
    assert "No point of these figures lies in this stretch" in page.text
    assert page.named("svg") == []


def test_the_chart_has_the_points_that_are_stored(slower: Client, store: Store) -> None:
    found = slower.get("/trends/s1/chart?figure=cold_s").json()
    (curve,) = found["curves"]
    with store.reading() as session:
        stored = repositories.series_points.points_of(session, "s1", ["cold_s"])
    assert curve["value"] == [point.value for point in stored]
    assert curve["at"][-1] == night(10).timestamp() * 1000
    assert curve["total"] == len(stored) == 10
    assert curve["level"][1] == pytest.approx(20.0)
    assert found["versions"][0]["text"] == "vllm 0.30.0 → 0.31.0"
    assert not found["thinned"]


def test_more_points_than_are_drawn_one_by_one_are_told(slower: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "drawn as one" not in page_of(slower).text
    monkeypatch.setattr(trends, "DOTS", 3)
    page = page_of(slower)
    assert "drawn as one" in page.text
    assert slower.get("/trends/s1/chart").json()["thinned"]
    # A dot of several leads to the stretch that holds them, where they are apart.
    link = next(link for link in page.attributes("href") if link.startswith("?figure") and "since" in link)
    monkeypatch.undo()
    assert [link for link in page_of(slower, link).attributes("href") if "/cells/" in link]


@pytest.mark.parametrize("prefix", ["", "/deep/prefix"])
def test_every_link_of_it_leads_somewhere(store: Store, slower: Client, prefix: str) -> None:
    for number in range(11):
        add_sweep(store, sweep_of(number), cells=1)
    client = make_client(store, root_path=prefix)
    for path in (f"{prefix}/trends/", f"{prefix}/trends/s1"):
        page = Page(client.get(path).text)
        links = [*page.attributes("href"), *page.attributes("src"), *page.attributes("data-source")]
        for link in {link for link in links if not link.startswith(("#", "data:"))}:
            assert client.get(urljoin(path, link)).status_code == 200, link


def test_styles_that_bokeh_makes_are_allowed_by_a_nonce_and_nothing_more(slower: Client) -> None:
    first, second = (slower.get("/trends/s1") for _ in range(2))
    policy = first.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    (nonce,) = re.findall(r"style-src 'self' 'nonce-([\w-]+)'", policy)
    assert {item["data-nonce"] for item in Page(first.text).named("script") if "data-nonce" in item} == {nonce}
    assert nonce not in second.headers["Content-Security-Policy"]
    assert "nonce" not in slower.get("/trends/").headers["Content-Security-Policy"]
    assert "style=" not in first.text
    assert not re.search(r"\son\w+=", first.text)


def test_hostile_text_is_text(client: Client, store: Store) -> None:
    of = series("s1", HOSTILE)
    add_night(store, 0, {"cold_s": 1.0}, of=of, versions={"vllm": "1"})
    add_night(store, 1, {"cold_s": 1.0}, of=of, versions={"vllm": HOSTILE})
    for path in ("/trends/", "/trends/s1", f"/trends/?q={HOSTILE}", f"/trends/s1?figure={HOSTILE}&since={HOSTILE}"):
        page = Page(client.get(path).text)
        assert HOSTILE in page.text
        assert all("src" in script for script in page.named("script"))


def test_a_series_that_is_not_there(client: Client) -> None:
    assert_problem(client.get("/trends/none"), 404, "unknown-series")
    assert_problem(client.get("/trends/none/chart"), 404, "unknown-series")


def newest_point(store: Store) -> int:
    with store.reading() as session:
        return repositories.series_points.points_of(session, "s1", ["cold_s"])[-1].id


def state_of(store: Store) -> SeriesState:
    with store.reading() as session:
        return repositories.series_state.state_of(session, "s1")


def test_a_baseline_is_accepted_with_a_reason(slower: Client, store: Store) -> None:
    fields = {"point": f"cold_s:{newest_point(store)}", "reason": "the new compiler is worth it"}
    response = slower.post("/trends/s1/baseline", data=fields, headers=OWN)
    assert (response.status_code, response.headers["Location"]) == (303, "../s1")
    page = page_of(slower)
    assert "accepted by local user: the new compiler is worth it" in page.text
    assert "✗ regression" not in page.text


def test_what_is_wrong_stands_beside_its_field(slower: Client, store: Store) -> None:
    point = f"cold_s:{newest_point(store)}"
    wrong = [
        ("baseline", {"point": "", "reason": "why"}, "point"),
        ("baseline", {"point": "cold_s:x", "reason": "why"}, "point"),
        ("baseline", {"point": point, "reason": ""}, "reason"),
        ("baseline", {"point": point, "reason": "x" * 501}, "reason"),
        ("mute", {"until": "2020-01-01", "reason": "why"}, "until"),
        ("mute", {"until": "soon", "reason": "why"}, "until"),
        ("mute", {"until": "2999-01-01", "reason": " "}, "reason"),
    ]
    for action, fields, field in wrong:
        response = slower.post(f"/trends/s1/{action}", data=fields, headers=OWN)
        assert response.status_code == 422, fields
        page = Page(response.text)
        assert page.attributes("id").count(f"{field}-error-1") == 1, fields
        assert fields["reason"].strip() in [*page.attributes("value"), ""]
    state = state_of(store)
    assert state.mutes == ()
    assert state.figures["cold_s"].accepted is None


def test_a_point_of_another_figure_is_no_baseline(slower: Client, store: Store) -> None:
    fields = {"point": f"warm_s:{newest_point(store)}", "reason": "why"}
    response = slower.post("/trends/s1/baseline", data=fields, headers=OWN)
    assert response.status_code == 409
    assert "is none of warm_s" in Page(response.text).text


def test_it_is_muted_until_a_day_and_told_of_again(slower: Client) -> None:
    fields = {"until": "2999-12-31", "reason": "compiler is being changed"}
    assert slower.post("/trends/s1/mute", data=fields, headers=OWN).headers["Location"] == "../s1"
    page = page_of(slower)
    assert "▲ muted until 2999-12-31 23:59:59 UTC" in page.text
    assert "by local user: compiler is being changed" in page.text
    assert slower.post("/trends/s1/unmute", headers=OWN).status_code == 303
    assert "▲ muted" not in page_of(slower).text


def test_it_is_pinned_and_taken_off(slower: Client) -> None:
    for pinned in ("true", "false"):
        assert slower.post("/trends/s1/pin", data={"pinned": pinned}, headers=OWN).status_code == 303
        assert ("★ pinned" in page_of(slower).text) is (pinned == "true")


def test_who_may_only_look_is_offered_nothing(slower: Client, store: Store) -> None:
    headers = session(slower, make_key(store, Scope.READ))
    page = page_of(slower, headers=headers)
    assert {str(form["action"]) for form in page.named("form") if form["method"] == "post"} == {"../logout"}
    assert_problem(slower.post("/trends/s1/pin", headers=headers | OWN), 403, "scope-missing")


def test_forms_bring_the_token_of_the_session(slower: Client, store: Store) -> None:
    headers = session(slower, make_key(store, Scope.SUBMIT)) | OWN
    assert_problem(slower.post("/trends/s1/pin", data={"pinned": "true"}, headers=headers), 403, "csrf")
    fields = page_of(slower, headers=headers).named("input")
    (token,) = {str(item["value"]) for item in fields if item.get("name") == "csrf"}
    fields_sent = {"pinned": "true", "csrf": token}
    assert slower.post("/trends/s1/pin", data=fields_sent, headers=headers).status_code == 303
