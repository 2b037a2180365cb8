"""``shardproof bench dispatch``: what it measures, and what it writes. Never how fast anything is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import IntegrityError
from store.samples import SWEEP, add_sweep, phase

from service import dispatch_bench
from service.dispatch.plan import plan
from service.dispatch_bench import measured, percentile
from service.dispatch_load import Lags, matrix, samples
from service.domain.document import parse
from service.domain.lifecycle import State
from service.domain.startup import NotMeasured
from service.domain.verdict import Verdict
from service.recordings import recorded
from service.settings import Settings
from service.store import Store, open_store, repositories


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path}/bench.db")
    yield store
    store.close()


@pytest.fixture
def lags() -> Iterator[Lags]:
    found = Lags()
    yield found
    for name, listener in (("before_execute", found._note), ("commit", found._count), ("rollback", found._forget)):
        event.remove(Engine, name, listener)


def test_a_lag_is_counted_when_its_event_is_stored_and_not_before(store: Store, lags: Lags) -> None:
    add_sweep(store, cells=1)
    with store.transaction() as session:
        old = phase("c0", 0, "compile")
        repositories.add_events(session, [old, phase("c0", 1, "compile")])
        assert lags.ms.total() == 0
    assert lags.ms.total() == 2
    least = (time.time() - 1.0) * 1000 - 60_000
    assert all(ms > least for ms in lags.ms)


def test_what_is_rolled_back_has_no_lag(store: Store, lags: Lags) -> None:
    add_sweep(store, cells=1)
    with pytest.raises(IntegrityError), store.transaction() as session:
        repositories.add_events(session, [phase("c0", 0, "compile"), replace(phase("c0", 0, "compile"), sweep_id="x")])
    add_sweep(store, "20261130-021501-ab12cd", cells=1)
    assert lags.ms.total() == 0


@pytest.mark.parametrize(
    ("counted", "part", "value"),
    [([(3, 1)], 0.5, 3), ([(1, 99), (9, 1)], 0.99, 1), ([(1, 98), (9, 2)], 0.99, 9), ([(1, 1), (2, 1)], 0.5, 1)],
)
def test_a_percentile_is_a_value_that_was_measured(counted: list[tuple[int, int]], part: float, value: int) -> None:
    assert percentile(counted, part) == value


def test_there_is_a_sample_at_the_start_and_at_each_tenth(store: Store) -> None:
    ids = add_sweep(store, cells=20)
    found = samples(store, SWEEP, 20, time.monotonic())
    assert next(found).cells == 0
    for number, cell_id in enumerate(ids, start=1):
        with store.transaction() as session:
            for state in (State.QUEUED, State.LEASED, State.RUNNING):
                repositories.set_cell_state(session, SWEEP, cell_id, state)
            repositories.conclude_cell(session, SWEEP, cell_id, Verdict.PASS, True, [], State.FINISHED)
        if number % 2 == 0:
            assert next(found).cells == number
    assert next(found, None) is None


def test_the_cells_of_the_load_are_all_different_and_can_be_run(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, null_engine=recorded(), max_cells=500)
    planned = plan(parse(matrix(recorded(), 500)), settings)
    assert len(planned.cells) == 500
    assert not any(item.duplicate_of or item.cannot_run for item in planned.cells)


@pytest.mark.slow
def test_a_small_load_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_bench, "QUICK_CELLS", 5)
    found = dispatch_bench.dispatch(Settings(home=tmp_path), quick=True)
    *stretches, events = found["rows"]
    assert stretches[-1]["to_cell"] == 5
    for row in stretches:
        assert row["cells_s"] > 0
        assert row["controller_cpu_ms_per_cell"] > 0
        assert row["controller_rss_mib"] > 0
    assert events["events"] > 10
    assert 0 <= events["lag_p50_ms"] <= events["lag_p99_ms"] <= events["lag_max_ms"]
    assert found["figure"] > 0
    assert found["environment"]["device"] == "null engine"
    assert list(tmp_path.iterdir()) == [], "it takes its home away"


def test_a_load_that_does_not_pass_is_no_measurement() -> None:
    sample = {"cells": 0, "s": 0.0, "cpu_s": 0.0, "rss_bytes": 1}
    told = {"by_verdict": {"pass": 1, "crashed": 1}, "samples": [sample], "lags_ms": []}
    with pytest.raises(NotMeasured, match=r"not every cell of 2 passed: {'pass': 1, 'crashed': 1}"):
        measured(told, 2)
