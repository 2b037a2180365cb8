"""Series by their pages: a list that is searched, and a history with its chart and table."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urljoin

import pytest
from api.client import Client, make_client
from api.test_problems import assert_problem
from store.nights import add_night, add_nights, night, series, sweep_of
from store.samples import add_sweep

from dashboard.page import Page
from service.domain.verdict import Verdict
from service.store import Store, repositories
from service.store.repositories import trends

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
