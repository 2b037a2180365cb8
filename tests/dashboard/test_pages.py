from __future__ import annotations

import re
from urllib.parse import urljoin

import pytest
from api.client import Client, make_client
from store.samples import (
    SWEEP,
    add_sweep,
    advance,
    audited,
    cell,
    divergence,
    evidence,
    finish,
    output,
    phase,
    residual,
    sweep,
)

from dashboard.page import Page
from service.domain.lifecycle import State
from service.domain.verdict import Verdict
from service.store import Store, repositories
from workers.protocol import Role

HOSTILE = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>"


def end(store: Store) -> None:
    with store.transaction() as session:
        repositories.end_sweep(session, SWEEP)


def test_the_list_names_sweeps_and_how_they_went(client: Client, store: Store) -> None:
    add_sweep(store, cells=1)
    finish(store, "c0", evidence())
    page = Page(client.get("/").text)
    assert "quickstart 2026-11-30 02:15:00 UTC active 1 ✓ 1 ✗ 0" in page.text


def test_the_page_says_when_the_files_of_a_sweep_were_removed(client: Client, store: Store) -> None:
    add_sweep(store, cells=1)
    finish(store, "c0", evidence())
    end(store)
    assert "its files removed" not in Page(client.get(f"/sweeps/{SWEEP}").text).text
    with store.transaction() as session:
        repositories.note_artifacts_removed(session, SWEEP, 1796000000.0)
    assert "its files removed 2026-11-30 00:53:20 UTC" in Page(client.get(f"/sweeps/{SWEEP}").text).text


def test_an_empty_list_says_what_to_do(client: Client) -> None:
    assert "shardproof submit MATRIX" in Page(client.get("/").text).text


def test_the_list_has_pages(client: Client, store: Store) -> None:
    for number in range(51):
        add_sweep(store, f"sweep-{number:02}", cells=0)
    first = Page(client.get("/").text)
    assert "?before=sweep-01" in first.attributes("href")
    second = Page(client.get("/?before=sweep-01").text)
    assert [link for link in second.attributes("href") if "sweep" in link] == ["sweeps/sweep-00"]


@pytest.mark.parametrize("prefix", ["", "/deep/prefix"])
def test_every_link_leads_somewhere_under_any_prefix(store: Store, prefix: str) -> None:
    add_sweep(store)
    client = make_client(store, root_path=prefix)
    for path in (f"{prefix}/", f"{prefix}/sweeps/{SWEEP}"):
        page = Page(client.get(path).text)
        links = [*page.attributes("href"), *page.attributes("src"), *page.attributes("data-source")]
        for link in {link for link in links if not link.startswith(("#", "data:"))}:
            assert client.get(urljoin(path, link)).status_code == 200, link
        anchors = {link[1:] for link in links if link.startswith("#")}
        assert anchors <= set(page.attributes("id"))


def test_pages_load_nothing_from_elsewhere_and_say_so(client: Client, store: Store) -> None:
    add_sweep(store)
    for path in ("/", f"/sweeps/{SWEEP}"):
        response = client.get(path)
        assert "//" not in response.text.replace("<!doctype", "")
        assert "default-src 'none'" in response.headers["Content-Security-Policy"]
        assert "style=" not in response.text
        assert not re.search(r"\son\w+=", response.text)


def test_a_running_cell_shows_each_rank_and_how_long(client: Client, store: Store) -> None:
    add_sweep(store)
    advance(store, "c0", State.QUEUED, State.LEASED, State.RUNNING)
    with store.transaction() as session:
        repositories.add_events(session, [phase("c0", 0, "dynamo"), phase("c0", 1, "load weights")])
    text = Page(client.get(f"/sweeps/{SWEEP}/table").text).text
    assert re.search(r"running, 0\.\d s cold rank 0: dynamo \(\d+\.\d s\) cold rank 1: load weights \(", text)
    assert "0 of 2 cells ended: 0 ok, 0 unexpected" in text


def test_a_sweep_page_refreshes_until_it_has_ended(client: Client, store: Store) -> None:
    add_sweep(store)
    running = Page(client.get(f"/sweeps/{SWEEP}").text)
    assert running.named("script") == [{"src": "../static/refresh.js", "defer": None}]
    assert {"http-equiv": "refresh", "content": "5"} in running.named("meta")
    assert not any("data-ended" in section for section in running.named("section"))
    end(store)
    ended = Page(client.get(f"/sweeps/{SWEEP}").text)
    assert ended.named("script") == []
    assert not any("http-equiv" in meta for meta in ended.named("meta"))
    table = Page(client.get(f"/sweeps/{SWEEP}/table").text)
    assert any("data-ended" in section for section in table.named("section"))


def test_a_finished_cell_shows_what_was_found(client: Client, store: Store) -> None:
    add_sweep(store)
    with store.transaction() as session:
        repositories.record_audit(session, SWEEP, "c0", audited("c0"), None)
        repositories.set_duplicate(session, SWEEP, "c1", "c0")
    finish(store, "c0", evidence())
    text = Page(client.get(f"/sweeps/{SWEEP}").text).text
    assert "✓ pass ✓ ok expects pass 20.0 s 6.0 s 5/5 all checks held" in text
    assert "same as cell c0" in text
    assert "compilation_config.splitting_ops not written → [] SP needs the whole graph vllm/config/vllm.py:800" in text
    assert "✓ held is_residual_scattered_for_sp : full graph on every rank" in text
    assert (
        "phase rank 0 rank 1 dynamo 1.5 s 1.5 s inductor 2.0 s 2.0 s unaccounted 16.5 s 16.5 s total 20.0 s 20.0 s"
        in text
    )
    assert "probe against replicated: 4 sites, 7 steps, 2 ranks, scattered; equal bit by bit" in text
    assert "probe against replicated: identical, 32 tokens" in text
    assert "Patch full_graph_sp : native." in text
    assert "shardproof run MATRIX --cell 'cell c0'" in text


def test_the_first_divergence_is_the_first_finding(client: Client, store: Store) -> None:
    add_sweep(store, cells=1)
    finish(store, "c0", evidence(residual=[residual(bitwise_equal=False, first_divergence=divergence())]))
    table = client.get(f"/sweeps/{SWEEP}/table").text
    assert '<td data-label="First finding">shifted at layers.1.mlp, rank 1</td>' in table


def test_outputs_that_could_not_be_compared_say_why(client: Client, store: Store) -> None:
    add_sweep(store, cells=1)
    finish(store, "c0", evidence(outputs=[output(Role.REFERENCE, None, "the arm has no outputs")]))
    text = Page(client.get(f"/sweeps/{SWEEP}").text).text
    assert "probe against reference: not compared, 32 tokens ; the arm has no outputs" in text


def test_what_was_not_measured_is_a_dash(client: Client, store: Store) -> None:
    add_sweep(store, cells=1)
    table = client.get(f"/sweeps/{SWEEP}/table").text
    for label in ("Cold", "Warm", "Matched", "First finding"):
        assert f'<td data-label="{label}">—</td>' in table


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_has_a_sign_besides_its_colour(client: Client, store: Store, verdict: Verdict) -> None:
    add_sweep(store, cells=1)
    with store.transaction() as session:
        repositories.conclude_cell(session, SWEEP, "c0", verdict, False, [], State.CRASHED)
    text = Page(client.get(f"/sweeps/{SWEEP}/table").text).text
    assert re.search(rf"[✓✗▲=○] {verdict} ✗ unexpected", text)


def test_hostile_text_is_text(client: Client, store: Store) -> None:
    with store.transaction() as session:
        repositories.create_sweep(session, sweep(name=HOSTILE), [cell("c0", HOSTILE), cell(HOSTILE, "other")])
        repositories.record_audit(session, SWEEP, "c0", audited("c0", HOSTILE), None)
    advance(store, "c0", State.QUEUED, State.LEASED, State.RUNNING)
    advance(store, HOSTILE, State.QUEUED, State.LEASED, State.RUNNING)
    with store.transaction() as session:
        repositories.add_events(session, [phase(HOSTILE, 0, HOSTILE)])
        repositories.conclude_cell(session, SWEEP, "c0", Verdict.FAIL_GUARD, False, [HOSTILE], State.FINISHED)
    for path in ("/", f"/sweeps/{SWEEP}", f"/sweeps/{SWEEP}/table"):
        page = Page(client.get(path).text)
        assert page.text.count("<script>alert('x')</script>") >= 1
        assert page.named("img") == []
        assert [script.get("src") for script in page.named("script")] in ([], ["../static/refresh.js"])
