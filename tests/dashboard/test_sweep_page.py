from __future__ import annotations

import re
from typing import Any

import pytest
from api.client import Client
from store.nights import series
from store.samples import SWEEP, add_sweep, advance, cell, evidence, finish, phase, run_spec, sweep, times

from dashboard.page import Page
from service.domain.cell import Cell
from service.domain.lifecycle import State
from service.domain.measured import Measured
from service.domain.verdict import Verdict
from service.store import Store, repositories
from service.store.repositories import outcomes
from service.store.series_models import PointRow
from service.store.series_records import NewOutcome
from workers.protocol import Check, Compile

HOSTILE = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>"
PAGE, TABLE = f"/sweeps/{SWEEP}", f"/sweeps/{SWEEP}/table"


def grid(store: Store, *axes: tuple[str, list[Any]]) -> None:
    """A sweep whose cells `c0`, `c1`, … are the product of the axes, the first one slowest."""
    settings: list[dict[str, Any]] = [{}]
    for key, values in axes:
        settings = [{**rest, key: value} for rest in settings for value in values]
    cells = [
        Cell(f"c{place}", f"cell {place}", requested, (Verdict.PASS,), (Check.AUDIT,), ("matrix",))
        for place, requested in enumerate(settings)
    ]
    with store.transaction() as session:
        repositories.create_sweep(session, sweep(), cells)


def hold_against(store: Store, cell_id: str, cold_s: float, baseline_s: float) -> None:
    """As rules leave it: the point of a cell, and what it was held against."""
    point = Measured("cold_s", cold_s, cold_s, cold_s, 1)
    new = NewOutcome("s1", SWEEP, cell_id, "r", sweep().created_at, Verdict.PASS, True, {}, (point,))
    with store.transaction() as session:
        outcomes.add_outcome(session, series(), new)
        session.query(PointRow).update({"baseline": baseline_s})


def chips(client: Client, query: str = "") -> list[str]:
    """The cells in the heat map, in the order in which they are read."""
    links = Page(client.get(PAGE + query).text).named("a")
    return [str(link["title"]) for link in links if str(link.get("class")).startswith("chip ")]


def test_filters_are_in_the_address_and_leave_what_they_say(client: Client, store: Store) -> None:
    grid(store, ("tensor_parallel_size", [2, 4]), ("dtype", ["float32", "bfloat16"]))
    finish(store, "c1", evidence())
    assert chips(client, "?value=dtype=%22bfloat16%22") == ["cell 1", "cell 3"]
    assert chips(client, "?value=dtype=%22bfloat16%22&value=tensor_parallel_size=4") == ["cell 3"]
    assert chips(client, "?verdict=pass") == ["cell 1"]
    assert chips(client, "?verdict=not-yet") == ["cell 0", "cell 2", "cell 3"]
    assert "1 of 4 shown" in Page(client.get(TABLE + "?verdict=pass").text).text


def test_a_filter_that_matches_nothing_says_so(client: Client, store: Store) -> None:
    grid(store, ("a", [1, 2]))
    for query in ("?verdict=crashed", "?changed=1", "?value=a=3"):
        response = client.get(PAGE + query)
        assert response.status_code == 200
        assert "No cell is like that." in Page(response.text).text
    text = Page(client.get(PAGE + f"?x={HOSTILE}&value=nope=1").text).text
    assert "No axis of this sweep is called 'nope'." in text
    assert "onerror=alert(1)" in text
    assert client.get(PAGE + "?page=0").status_code == 422


def test_a_sweep_without_cells_has_a_page(client: Client, store: Store) -> None:
    add_sweep(store, cells=0)
    assert "This sweep has no cells." in Page(client.get(PAGE).text).text


def test_colour_and_words_say_how_far_a_cell_is_from_its_baseline(client: Client, store: Store) -> None:
    grid(store, ("a", [1, 2]))
    finish(store, "c0", evidence(compile=Compile(cold=times(24.0), warm=None)))
    assert "No cell has a baseline" in Page(client.get(PAGE).text).text
    assert chips(client, "?changed=1") == []
    hold_against(store, "c0", 24.0, 20.0)
    html = client.get(PAGE).text
    assert 'class="chip d2 is-good"' in html
    assert "▲ 20 % 20 % slower than its baseline" in Page(html).text
    assert chips(client, "?changed=1") == ["cell 0"]


def test_a_duplicate_is_held_against_the_same_baseline(client: Client, store: Store) -> None:
    grid(store, ("a", [1, 2]))
    finish(store, "c0", evidence(compile=Compile(cold=times(16.0), warm=None)))
    with store.transaction() as session:
        repositories.set_duplicate(session, SWEEP, "c1", "c0")
    hold_against(store, "c0", 16.0, 20.0)
    html = client.get(PAGE).text
    assert html.count('class="chip f2') == 2
    assert "same as cell 0" in Page(html).text


def test_a_running_cell_shows_each_rank_and_how_long(client: Client, store: Store) -> None:
    add_sweep(store)
    advance(store, "c0", State.QUEUED, State.LEASED, State.RUNNING)
    with store.transaction() as session:
        repositories.add_events(session, [phase("c0", 0, "dynamo"), phase("c0", 1, "load weights")])
    text = Page(client.get(TABLE).text).text
    assert re.search(r"running, \d\.\d s cold rank 0: dynamo \( ?\d+\.\d s ?\) cold rank 1: load weights \(", text)
    assert "0 of 2 cells ended: 0 ok, 0 unexpected" in text


def test_a_page_is_live_until_its_sweep_has_ended(client: Client, store: Store) -> None:
    add_sweep(store)
    with store.transaction() as session:
        repositories.add_events(session, [phase("c0", 0, "dynamo")])
    running = Page(client.get(PAGE).text)
    assert {"src": "../static/live.js", "defer": None} in running.named("script")
    assert {"http-equiv": "refresh", "content": "5"} in running.named("meta")
    assert not any("data-ended" in section for section in running.named("section"))
    (live,) = [item for item in running.named("div") if item.get("id") == "live"]
    assert (live["data-stream"], live["data-after"]) == (f"../v1/sweeps/{SWEEP}/events/stream", "1")
    with store.transaction() as session:
        repositories.end_sweep(session, SWEEP)
    ended = Page(client.get(PAGE).text)
    assert "../static/live.js" not in ended.attributes("src")
    assert not any("http-equiv" in meta for meta in ended.named("meta"))
    assert any("data-ended" in section for section in Page(client.get(TABLE).text).named("section"))


def test_the_list_shows_times_counts_and_the_gravest_finding(client: Client, store: Store) -> None:
    add_sweep(store)
    finish(store, "c0", evidence(), reason="fail-guard: it does not hold")
    text = Page(client.get(TABLE).text).text
    assert "✓ pass ✓ ok expects pass 20.0 s 6.0 s 5/5 fail-guard: it does not hold" in text


def test_what_was_not_measured_is_a_dash(client: Client, store: Store) -> None:
    add_sweep(store, cells=1)
    table = client.get(TABLE).text
    for label in ("Cold", "Warm", "Matched", "First finding"):
        assert re.search(rf'<td data-label="{label}"><div[^>]*>—</div>', table)


def test_figures_are_read_again_while_there_are_none(client: Client, store: Store) -> None:
    add_sweep(store, cells=1)
    advance(store, "c0", State.QUEUED, State.LEASED, State.RUNNING)
    with store.transaction() as session:
        repositories.create_run(session, SWEEP, "c0", run_spec("run-1"), State.RUNNING)
    assert "20.0 s" not in Page(client.get(TABLE).text).text
    with store.transaction() as session:
        repositories.finish_run(session, "run-1", State.FINISHED, evidence())
    assert "20.0 s" in Page(client.get(TABLE).text).text


def test_the_list_has_pages_and_the_heat_map_has_all(client: Client, store: Store) -> None:
    grid(store, ("a", list(range(11))), ("b", list(range(10))))
    first, second = (Page(client.get(PAGE + query).text) for query in ("", "?page=2"))
    rows = [len([row for row in page.named("td") if row.get("data-label") == "State"]) for page in (first, second)]
    assert rows == [100, 10]
    assert len(chips(client)) == 110
    assert "?page=2" in first.attributes("href")


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_has_a_sign_besides_its_colour(client: Client, store: Store, verdict: Verdict) -> None:
    add_sweep(store, cells=1)
    with store.transaction() as session:
        repositories.conclude_cell(session, SWEEP, "c0", verdict, False, [], State.CRASHED)
    text = Page(client.get(TABLE).text).text
    assert re.search(rf"[✓✗▲=○] {verdict} ✗ unexpected", text)


def test_hostile_text_is_text(client: Client, store: Store) -> None:
    with store.transaction() as session:
        repositories.create_sweep(
            session,
            sweep(name=HOSTILE),
            [cell("c0", HOSTILE), Cell(HOSTILE, "other", {HOSTILE: HOSTILE}, (Verdict.PASS,), (Check.AUDIT,), ())],
        )
    advance(store, "c0", State.QUEUED, State.LEASED, State.RUNNING)
    advance(store, HOSTILE, State.QUEUED, State.LEASED, State.RUNNING)
    with store.transaction() as session:
        repositories.add_events(session, [phase(HOSTILE, 0, HOSTILE)])
        repositories.conclude_cell(session, SWEEP, "c0", Verdict.FAIL_GUARD, False, [HOSTILE], State.FINISHED)
    for path in ("/", "/sweeps/", PAGE, TABLE, f"{PAGE}/cells/c0"):
        page = Page(client.get(path).text)
        assert page.text.count("<script>alert('x')</script>") >= 1, path
        assert page.named("img") == []
        assert all(str(script.get("src", "")).endswith(".js") for script in page.named("script"))
