"""Metrics and readiness, as a scraper and a load balancer see them. The text is read back by Prometheus' own parser."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from store.samples import SWEEP, add_sweep, advance, evidence, finish, phase

from api.client import Client, StoringController, make_client
from api.test_problems import assert_problem
from api.test_schedules import NIGHTLY
from service.dispatch.occupancy import ClusterOccupancy, Occupancy
from service.domain.lifecycle import State
from service.domain.verdict import Verdict
from service.metrics import Metrics
from service.store import Store, repositories
from workers.protocol import Evidence, Role, TimedStart

Labels = tuple[tuple[str, str], ...]


def parsed(text: str) -> dict[tuple[str, Labels], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scrape(client: Client) -> dict[tuple[str, Labels], float]:
    response = client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["Content-Type"].startswith("text/plain; version=")
    return parsed(response.text)


def test_the_queue_is_what_the_database_says_now(client: Client, store: Store) -> None:
    add_sweep(store, cells=3)
    advance(store, "c0", State.QUEUED, State.LEASED, State.RUNNING)
    advance(store, "c1", State.QUEUED)
    found = scrape(client)
    states = {labels[0][1]: value for (name, labels), value in found.items() if name == "shardproof_queue_cells"}
    assert states == {"running": 1, "queued": 1, "auditing": 1}
    with store.transaction() as session:
        repositories.end_sweep(session, SWEEP)
    assert not [name for name, _ in scrape(client) if name == "shardproof_queue_cells"]


def test_what_ended_is_counted_by_what_was_found(client: Client, store: Store) -> None:
    add_sweep(store, cells=3)
    finish(store, "c0", evidence())
    with store.transaction() as session:
        repositories.conclude_cell(session, SWEEP, "c1", Verdict.CRASHED, False, [], State.CRASHED)
    found = scrape(client)
    assert found["shardproof_cells_total", (("ok", "true"), ("verdict", "pass"))] == 1
    assert found["shardproof_cells_total", (("ok", "false"), ("verdict", "crashed"))] == 1
    assert found["shardproof_runs_total", (("state", "finished"),)] == 1


def test_phases_are_those_of_the_evidence(client: Client, store: Store) -> None:
    add_sweep(store, cells=1)
    shown = with_starts(evidence())
    finish(store, "c0", shown)
    found = scrape(client)
    expected: dict[Labels, float] = {}
    for start in shown.compile.starts:
        for rank in start.times.ranks:
            for item in rank.phases:
                key = (("arm", str(start.role)), ("phase", item.name))
                expected[key] = expected.get(key, 0.0) + item.s
    sums = {labels: value for (name, labels), value in found.items() if name == "shardproof_phase_seconds_sum"}
    assert expected
    assert sums == pytest.approx(expected)


def test_the_lag_of_events_is_from_their_time_to_their_commit(store: Store) -> None:
    metrics = Metrics(store, dict, clock=lambda: 1010.0)
    add_sweep(store)
    with store.transaction() as session:
        repositories.add_events(session, [phase("c0", rank, "load", at=1008.0 + rank) for rank in range(4)])
    found = parsed(metrics.exposition("")[0].decode())
    assert found["shardproof_event_lag_seconds_count", ()] == 4
    assert found["shardproof_event_lag_seconds_sum", ()] == 3.0  # a clock that is ahead is no negative lag
    assert found["shardproof_event_lag_seconds_bucket", (("le", "1.0"),)] == 3


def test_what_was_rolled_back_is_not_counted(client: Client, store: Store) -> None:
    add_sweep(store)

    def half_done() -> None:
        with store.transaction() as session:
            repositories.conclude_cell(session, SWEEP, "c0", Verdict.CRASHED, False, [], State.CRASHED)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half_done()
    assert not [name for name, _ in scrape(client) if name == "shardproof_cells_total"]


def test_schedules_tell_what_they_fired_and_when_the_next_is_due(client: Client) -> None:
    assert client.post("/v1/schedules", json=NIGHTLY).status_code == 201
    client.post("/v1/schedules/nightly/fires")
    found = scrape(client)
    assert found["shardproof_schedule_fires_total", (("cause", "asked"), ("state", "submitted"))] == 1
    assert found["shardproof_schedule_next_timestamp_seconds", ()] > 1.7e9


def test_slots_are_what_ray_says(store: Store) -> None:
    metrics = Metrics(store, lambda: {"CPU": Occupancy(8, 5.5), "GPU": Occupancy(4, 0)})
    found = parsed(metrics.exposition("")[0].decode())
    assert (
        found["shardproof_slots", (("resource", "GPU"),)] == found["shardproof_slots_used", (("resource", "GPU"),)] == 4
    )
    assert found["shardproof_slots_used", (("resource", "CPU"),)] == 2.5


def test_a_cluster_that_does_not_answer_holds_no_scrape_up(store: Store) -> None:
    let_go = threading.Event()

    def hangs() -> Mapping[str, Occupancy]:
        let_go.wait(60)
        return {"CPU": Occupancy(1, 1)}

    occupancy = ClusterOccupancy(hangs, patience_s=0.01)
    assert occupancy() == {}
    assert occupancy() == {}
    assert len([thread for thread in threading.enumerate() if thread.name == "occupancy"]) == 1
    let_go.set()
    assert ClusterOccupancy(hangs, patience_s=60)() == {"CPU": Occupancy(1, 1)}


def test_a_cluster_that_fails_is_none(store: Store) -> None:
    def fails() -> Mapping[str, Occupancy]:
        raise RuntimeError("gone")

    assert ClusterOccupancy(fails)() == {}


def test_without_ray_there_are_no_slots(client: Client) -> None:
    assert not [name for name, _ in scrape(client) if name.startswith("shardproof_slots")]


def test_a_scraper_may_ask_for_openmetrics(client: Client, store: Store) -> None:
    add_sweep(store)
    response = client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert response.headers["Content-Type"].startswith("application/openmetrics-text")
    assert {family.name for family in openmetrics(response.text)} >= {"shardproof_queue_cells", "shardproof_cells"}


def test_a_database_that_is_gone_is_said_and_the_rest_still_told(tmp_path: Path, client: Client, store: Store) -> None:
    assert scrape(client)["shardproof_database_up", ()] == 1
    finish_one(store)
    break_database(tmp_path)
    found = parsed(client.app.state.metrics.exposition("")[0].decode())
    assert found["shardproof_database_up", ()] == 0
    assert found["shardproof_cells_total", (("ok", "true"), ("verdict", "pass"))] == 1
    assert client.get("/readyz").status_code >= 500


def with_starts(found: Evidence) -> Evidence:
    cold = found.compile.cold
    assert cold is not None
    starts = [TimedStart(role=Role.COLD, repeat=repeat, times=cold) for repeat in (1, 2)]
    return found.model_copy(update={"compile": found.compile.model_copy(update={"starts": starts})})


def finish_one(store: Store) -> None:
    add_sweep(store, cells=1)
    finish(store, "c0", evidence())


def break_database(folder: Path) -> None:
    for path in folder.glob("shardproof.db*"):
        path.write_bytes(b"no database " * 1000)


def test_ready_when_sweeps_can_start(store: Store, controller: StoringController) -> None:
    client = make_client(store, controller)
    assert client.get("/readyz").json() == {"status": "ok"}
    controller.why_not = "Ray is not there yet"
    problem = assert_problem(client.get("/readyz"), 503, "not-ready")
    assert problem["detail"] == "Ray is not there yet"
    assert client.get("/healthz").status_code == 200
