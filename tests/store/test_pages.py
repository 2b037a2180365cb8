"""Lists by key: nothing is left out, nothing comes twice, and a page deep in a list is found by an index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import event, text

from service.domain.lifecycle import State
from service.store import Store, repositories
from service.store.records import NewEvent, UnknownRecord
from service.store.repositories import pages

from .samples import SWEEP, add_sweep, evidence, finish, run_spec

OTHER = "20261130-021501-ab12cd"


def add_runs(store: Store, cell_id: str, *run_ids: str, sweep_id: str = SWEEP) -> None:
    with store.transaction() as session:
        for run_id in run_ids:
            repositories.create_run(session, sweep_id, cell_id, run_spec(run_id, cell_id))


def test_cells_come_in_the_order_of_the_matrix(store: Store) -> None:
    ids = add_sweep(store, cells=5)
    add_sweep(store, OTHER, cells=2)
    with store.reading() as session:
        first = pages.page_of_cells(session, SWEEP, -1, 2)
        rest = pages.page_of_cells(session, SWEEP, first[-1].position, 9)
    assert [cell.id for cell in first + rest] == ids
    assert (first[0].name, first[0].state, first[0].verdict) == ("cell c0", State.AUDITING, None)


def test_runs_come_by_cell_and_attempt(store: Store) -> None:
    add_sweep(store, cells=3)
    add_sweep(store, OTHER, cells=1)
    add_runs(store, "c1", "z", "a")
    add_runs(store, "c0", "m")
    add_runs(store, "c0", "other", sweep_id=OTHER)
    with store.reading() as session:
        everything = pages.page_of_runs(session, SWEEP, None, 9)
        behind = [pages.page_of_runs(session, SWEEP, (run.cell_id, run.attempt), 1) for run in everything]
        attempts = pages.page_of_attempts(session, SWEEP, "c1", 1, 9)
    assert [(run.id, run.cell_id, run.attempt) for run in everything] == [
        ("m", "c0", 1),
        ("z", "c1", 1),
        ("a", "c1", 2),
    ]
    assert [[run.id for run in page] for page in behind] == [["z"], ["a"], []]
    assert [run.id for run in attempts] == ["a"]


def test_the_latest_run_of_a_cell_is_its_newest_attempt(store: Store) -> None:
    add_sweep(store)
    add_runs(store, "c1", "z", "a")
    with store.reading() as session:
        latest = pages.latest_run(session, SWEEP, "c1")
        assert latest is not None
        assert latest.id == "a"
        assert pages.latest_run(session, SWEEP, "c0") is None
        with pytest.raises(UnknownRecord, match="no run 'x'"):
            pages.run_summary(session, "x")


def test_events_of_a_run_are_its_own(store: Store) -> None:
    add_sweep(store)
    with store.transaction() as session:
        repositories.add_events(
            session, [NewEvent(SWEEP, float(at), "phase", "c0", f"run-{at % 2}") for at in range(6)]
        )
    with store.reading() as session:
        first = pages.run_events_after(session, "run-1", 0, 2)
        rest = pages.run_events_after(session, "run-1", first[-1].id, 9)
    assert [event.at for event in first + rest] == [1.0, 3.0, 5.0]


def plan_of(store: Store, read: Callable[[Any], object]) -> list[str]:
    """How SQLite finds what ``read`` asks for, one line for each table."""
    with store.reading() as session:
        asked: list[tuple[str, Any]] = []
        connection = session.connection()
        event.listen(
            connection,
            "before_cursor_execute",
            lambda _c, _cursor, statement, parameters, _context, _many: asked.append((statement, parameters)),
        )
        read(session)
        (statement, parameters) = asked[-1]
        lines = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
        return [str(line[3]) for line in lines]


READS: dict[str, Callable[[Any], object]] = {
    "cells": lambda session: pages.page_of_cells(session, SWEEP, 3, 9),
    "runs": lambda session: pages.page_of_runs(session, SWEEP, ("c0", 1), 9),
    "attempts": lambda session: pages.page_of_attempts(session, SWEEP, "c0", 1, 9),
    "latest run": lambda session: pages.latest_run(session, SWEEP, "c9"),
    "events": lambda session: pages.run_events_after(session, "run-1", 3, 9),
}


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", READS)
def test_a_page_is_found_by_an_index_and_not_sorted(store: Store, name: str) -> None:
    lines = plan_of(store, READS[name])
    assert all("USING INDEX" in line for line in lines), lines
    assert not any("TEMP B-TREE" in line or line.startswith("SCAN") for line in lines), lines


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_a_query_without_an_index_would_be_seen(store: Store) -> None:
    lines = plan_of(store, lambda session: session.execute(text("SELECT id FROM runs ORDER BY failure")).all())
    assert any(line.startswith("SCAN") for line in lines)
    assert any("TEMP B-TREE" in line for line in lines)


def test_no_list_reads_results(store: Store) -> None:
    add_sweep(store)
    finish(store, "c0", evidence())
    with store.reading() as session:
        (run,) = pages.page_of_runs(session, SWEEP, None, 9)
    assert not {"evidence", "spec"} & {*vars(run)}
