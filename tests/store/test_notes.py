"""What observers of the store are told, and when."""

from __future__ import annotations

import logging

import pytest

from service.domain.lifecycle import State
from service.domain.verdict import Verdict
from service.store import Store, repositories
from service.store.notes import CellEnded, EventsStored, RunEnded
from store.samples import SWEEP, add_sweep, evidence, finish, phase


def test_what_was_committed_is_told_in_order(store: Store) -> None:
    add_sweep(store)
    told: list[object] = []
    store.observe(told.append)
    finish(store, "c0", evidence())
    with store.transaction() as session:
        repositories.add_events(session, [phase("c1", 0, "load")])
        assert not [item for item in told if isinstance(item, EventsStored)]
    assert [type(item) for item in told if isinstance(item, RunEnded | CellEnded | EventsStored)] == [
        RunEnded,
        CellEnded,
        EventsStored,
    ]
    ended = next(item for item in told if isinstance(item, CellEnded))
    assert (ended.sweep_id, ended.cell_id, ended.verdict) == (SWEEP, "c0", Verdict.PASS)


def test_what_was_rolled_back_is_not_told(store: Store) -> None:
    add_sweep(store)
    told: list[object] = []
    store.observe(told.append)

    def half_done() -> None:
        with store.transaction() as session:
            repositories.conclude_cell(session, SWEEP, "c0", Verdict.CRASHED, False, [], State.CRASHED)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half_done()
    assert told == []


def test_an_observer_that_fails_harms_neither_the_work_nor_the_others(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    add_sweep(store)
    told: list[object] = []

    def failing(_: object) -> None:
        raise RuntimeError("no disk")

    store.observe(failing)
    store.observe(told.append)
    with caplog.at_level(logging.ERROR), store.transaction() as session:
        repositories.conclude_cell(session, SWEEP, "c0", Verdict.CRASHED, False, [], State.CRASHED)
    assert len(told) == 1
    assert "no disk" in caplog.text
    with store.reading() as session:
        assert repositories.get_cell(session, SWEEP, "c0").verdict is Verdict.CRASHED
