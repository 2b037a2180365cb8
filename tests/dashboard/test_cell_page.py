from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pytest
from api.client import Client, make_client
from store.nights import series
from store.samples import (
    SWEEP,
    add_sweep,
    advance,
    arm_report,
    audited,
    divergence,
    evidence,
    finish,
    output,
    phase,
    residual,
    run_spec,
    times,
)

from dashboard.page import Page
from service.dashboard.advice import ADVICE
from service.domain.lifecycle import State
from service.domain.verdict import Verdict
from service.store import Store, repositories
from service.store.repositories import outcomes
from service.store.series_records import NewOutcome
from workers.protocol import Compile, Failure, Invariant, Outcome, OutputClass, Role, SiteScore, StuckProcess

PAGE = f"/sweeps/{SWEEP}/cells/c0"


def text_of(client: Client, path: str = PAGE) -> str:
    return Page(client.get(path).text).text


def wrong(**fields: Any) -> Any:
    scores = [
        SiteScore(site=site, rank=rank, floor=1e-6, median=0.0, p99=0.0, max=score)
        for site, rank, score in (
            ("0.attn", 0, 0.0),
            ("0.attn", 1, 0.5),
            ("1.mlp", 0, 2.0),
            ("1.mlp", 1, float("nan")),
        )
    ]
    found = divergence().model_copy(
        update={
            "site": "1.mlp",
            "rows": [4, 7],
            "confusion": [[0.0, 1.25], [None, 0.0]],
            "sentence": "site 1.mlp, step 3: rank 1 holds each token's neighbour",
        }
    )
    return residual(bitwise_equal=False, worst_score=41.5, first_divergence=found, scores=scores, **fields)


def test_a_passing_cell_says_what_was_found(client: Client, store: Store) -> None:
    add_sweep(store)
    with store.transaction() as session:
        repositories.record_audit(session, SWEEP, "c0", audited("c0"), None)
    finish(store, "c0", evidence())
    text = text_of(client)
    assert "✓ pass ✓ ok expects pass all checks held" in text
    assert "compilation_config.splitting_ops not written [] SP needs the whole graph vllm/config/vllm.py:800" in text
    assert "✓ held is_residual_scattered_for_sp : full graph on every rank" in text
    assert "probe against replicated: ✓ equal bit by bit 4 sites, 7 steps, 2 ranks, scattered" in text
    assert "probe against replicated identical 32" in text
    assert "Patch full_graph_sp native" in text
    assert "shardproof run MATRIX --cell 'cell c0'" in text
    assert "1 finished 20" in text
    assert text.count("phase rank 0 rank 1 dynamo 1.5 s 1.5 s inductor 2.0 s 2.0 s unaccounted") == 2


def test_every_verdict_says_what_to_do() -> None:
    assert set(ADVICE) == set(Verdict)


def test_the_sentence_that_says_why_comes_before_the_other_findings(client: Client, store: Store) -> None:
    add_sweep(store, cells=1)
    advance(store, "c0", State.QUEUED, State.LEASED, State.RUNNING)
    reasons = ["fail-residual: rank 1 holds zeros", "downgraded: a is b", "note: the clock was set"]
    with store.transaction() as session:
        repositories.conclude_cell(session, SWEEP, "c0", Verdict.FAIL_RESIDUAL, False, reasons, State.FINISHED)
    text = text_of(client)
    assert "✗ fail-residual ✗ unexpected expects pass rank 1 holds zeros The residual stream is wrong." in text
    assert "▲ downgraded a is b note: the clock was set" in text


def test_times_are_drawn_on_one_scale_and_stand_in_a_table(client: Client, store: Store) -> None:
    add_sweep(store, cells=1)
    cold, warm = times(20.0), times(5.0)
    placed = [
        rank.model_copy(update={"phases": [item.model_copy(update={"begin": 10.0}) for item in rank.phases]})
        for rank in cold.ranks
    ]
    finish(store, "c0", evidence(compile=Compile(cold=cold.model_copy(update={"ranks": placed}), warm=warm)))
    page = Page(client.get(PAGE).text)
    bars = [item for item in page.named("rect") if item.get("height") == "7"]
    # Ten seconds of twenty are half of the width; what is not placed is not drawn.
    assert [bar["x"] for bar in bars if bar["x"] == "500.0"] == ["500.0"] * 4
    for rest in ("16.5 s", "1.5 s"):
        assert f"unexplained rest rank 0: in no phase {rest} rank 1: in no phase {rest} {rest} {rest}" in page.text


def test_the_map_outlines_the_first_divergence_and_shows_what_lies_behind_it(client: Client, store: Store) -> None:
    add_sweep(store, cells=1)
    finish(store, "c0", evidence(residual=[wrong()]))
    page = Page(client.get(PAGE).text)
    shades = [item["class"] for item in page.named("rect") if str(item.get("class"))[0] == "s" and "x" in item]
    assert shades == ["s1", "s2", "s5"]
    assert len([item for item in page.named("rect") if item.get("class") == "first"]) == 1
    text = page.text
    assert "First divergence: shifted at 1.mlp, rank 1. site 1.mlp, step 3" in text
    assert "Rows within the step: 4, 7" in text
    assert "rank 0 0 1.25 rank 1 — 0" in text
    assert "1.mlp 1 0 0 nan 1e-06" in text.lower()


def test_a_residual_that_holds_outlines_nothing(client: Client, store: Store) -> None:
    add_sweep(store, cells=1)
    finish(store, "c0", evidence())
    page = Page(client.get(PAGE).text)
    assert not [item for item in page.named("rect") if item.get("class") == "first"]
    assert "First divergence" not in page.text


def test_outputs_show_the_first_difference_or_why_there_is_none(client: Client, store: Store) -> None:
    add_sweep(store, cells=1)
    compared = [output(Role.REPLICATED, OutputClass.FLIP), output(Role.REFERENCE, None, "the arm has no outputs")]
    finish(store, "c0", evidence(outputs=compared))
    text = text_of(client)
    assert "probe against replicated flip 32 0 request 1, token 2: 9 in place of 7, margin 0.5" in text
    assert "probe against reference not compared; the arm has no outputs 32" in text


def test_a_broken_invariant_stands_in_front(client: Client, store: Store) -> None:
    add_sweep(store, cells=1)
    broken = Invariant(name="token-order", held=False, checked=9, detail="request 3 is out of order")
    finish(store, "c0", evidence(invariants=[broken]))
    assert "Invariants ✗ broken token-order , probe arm: request 3 is out of order 1 of 1 broken" in text_of(client)


def test_an_arm_that_was_stuck_says_what_each_process_did(client: Client, store: Store) -> None:
    add_sweep(store, cells=1)
    failure = Failure(
        phase="dynamo",
        rank=1,
        message="it did not end",
        log_tail=["last words"],
        cause="a collective that rank 0 never joins",
        processes=[StuckProcess(pid=7, rank=1, main=False, phase="dynamo", s=30.0, doing="waits in all_reduce")],
    )
    finish(store, "c0", evidence(arms=[arm_report(Role.COLD, Outcome.TIMED_OUT, failure)]))
    text = text_of(client)
    assert "it did not end, in phase dynamo, rank 1. Likely: a collective that rank 0 never joins." in text
    assert "Process 7, rank 1, in phase dynamo for 30.0 s: waits in all_reduce last words" in text


def test_a_cell_without_evidence_has_a_page(client: Client, store: Store) -> None:
    add_sweep(store, cells=1)
    text = text_of(client)
    assert "It has no verdict yet: it is auditing." in text
    assert "It has not been run." in text
    assert "Residual" not in text


def test_a_running_cell_is_live(client: Client, store: Store) -> None:
    add_sweep(store)
    advance(store, "c0", State.QUEUED, State.LEASED, State.RUNNING)
    with store.transaction() as session:
        repositories.add_events(session, [phase("c0", 1, "dynamo")])
    page = Page(client.get(PAGE).text)
    assert "cold rank 1: dynamo" in page.text
    (live,) = [item for item in page.named("div") if item.get("id") == "live"]
    assert live["data-stream"] == f"../../../v1/sweeps/{SWEEP}/events/stream"
    assert client.get(f"/sweeps/{SWEEP}/cells/{live['data-source']}").status_code == 200
    finish_it(store)
    assert "../../../static/live.js" not in Page(client.get(PAGE).text).attributes("src")


def finish_it(store: Store) -> None:
    with store.transaction() as session:
        repositories.conclude_cell(session, SWEEP, "c0", Verdict.PASS, True, [], State.FINISHED)


def test_a_duplicate_shows_the_run_of_the_cell_that_it_is_like(client: Client, store: Store) -> None:
    add_sweep(store)
    with store.transaction() as session:
        repositories.set_duplicate(session, SWEEP, "c1", "c0")
    finish(store, "c0", evidence())
    text = text_of(client, f"/sweeps/{SWEEP}/cells/c1")
    assert "Same effective settings as cell c0." in text
    assert "Cold 20.0 s Warm 6.0 s" in text


def test_files_lead_to_where_they_can_be_had(store: Store, tmp_path: Any) -> None:
    client = make_client(store, home=tmp_path)
    folder = tmp_path / "artifacts" / SWEEP / "cold"
    folder.mkdir(parents=True)
    (folder / "engine.log").write_text("hello")
    (folder / "a b.json").write_text("{}")
    add_sweep(store, cells=1)
    advance(store, "c0", State.QUEUED, State.LEASED, State.RUNNING)
    spec = run_spec("run-1")
    arm = spec.arms[0].model_copy(update={"folder": str(folder)})
    with store.transaction() as session:
        repositories.create_run(session, SWEEP, "c0", spec.model_copy(update={"arms": [arm]}), State.RUNNING)
    page = Page(client.get(PAGE).text)
    links = [link for link in page.attributes("href") if "/runs/run-1/" in link and "cold" in link]
    assert links == [
        "../../../v1/runs/run-1/logs/cold",
        "../../../v1/runs/run-1/artifacts/cold/engine.log",
        "../../../v1/runs/run-1/artifacts/cold/a%20b.json",
    ]
    for link in links:
        assert client.get(link.removeprefix("../../..")).status_code == 200
    assert "engine.log log, 5 B" in page.text


def add_outcome(store: Store, sweep_id: str, at: datetime) -> None:
    with store.transaction() as session:
        new = NewOutcome("s1", sweep_id, "c0", None, at, Verdict.PASS, True, {})
        outcomes.add_outcome(session, series(), new)


def test_a_cell_leads_to_its_series_and_to_the_time_before(client: Client, store: Store) -> None:
    add_sweep(store, cells=1)
    finish(store, "c0", evidence())
    add_outcome(store, SWEEP, datetime.now(UTC))
    links = Page(client.get(PAGE).text).attributes("href")
    assert "../../../trends/s1" in links
    assert client.get("/trends/s1").status_code == 200
    assert not [link for link in links if "compare" in link]
    add_sweep(store, "earlier", cells=1)
    add_outcome(store, "earlier", datetime(2026, 11, 29, 3, tzinfo=UTC))
    (link,) = [link for link in Page(client.get(PAGE).text).attributes("href") if "compare" in link]
    assert unquote(link) == f"../../../compare?a=earlier/c0&b={SWEEP}/c0"
    assert client.get(link.removeprefix("../../..")).status_code == 200


@pytest.mark.parametrize("path", [f"/sweeps/{SWEEP}/cells/nope", "/sweeps/nope/cells/c0", f"{PAGE}x/table"])
def test_what_is_not_there_is_not_found(client: Client, store: Store, path: str) -> None:
    add_sweep(store)
    assert client.get(path).status_code == 404
