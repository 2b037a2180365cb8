"""The nights of a series as pages list them, on both databases; and the series of a cell that was not resolved."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from service.domain.verdict import Verdict
from service.store import Store, repositories
from service.store.repositories import earlier, histories
from service.store.repositories.trends import Stretch
from store.nights import add_night, night, series, sweep_of
from store.samples import ENVIRONMENT, add_sweep
from store.test_trends import nights

__all__ = ["nights"]


def test_the_figures_of_a_series_are_known_by_name(nights: Store) -> None:
    with nights.reading() as session:
        assert histories.figures_of(session, "s1") == ["cold.dynamo", "cold_s", "warm_s"]
        assert histories.figures_of(session, "s2") == ["cold_s"]
        assert histories.figures_of(session, "none") == []


def test_the_table_has_nights_without_a_point_too(nights: Store) -> None:
    with nights.reading() as session:
        rows = histories.history(session, "s1", ["warm_s", "cold_s"], Stretch(), 50)
        newest = histories.history(session, "s1", ["cold_s"], Stretch(), 2)
        none = histories.history(session, "s1", ["cold_s"], Stretch(since=night(12) + timedelta(days=1)), 2)
    assert [row.at for row in rows] == [night(number) for number in reversed(range(12))]
    assert [row.verdict for row in rows if not row.figures] == [Verdict.CRASHED]
    assert rows[0].figures["cold_s"].value == 31.0
    assert rows[0].figures["cold_s"].repeats == 3
    assert [row.sweep_id for row in newest] == [sweep_of(11), sweep_of(10)]
    assert none == []


def test_the_series_of_a_cell_that_cannot_be_resolved_is_found_by_what_was_written(store: Store) -> None:
    add_sweep(store, sweep_of(0), cells=2)
    add_night(store, 0, {"cold_s": 20.0}, of=series("s1", "cell c0"))
    other = ENVIRONMENT.model_copy(update={"cores": 999})
    with store.reading() as session:
        cell = repositories.get_cell(session, sweep_of(0), "c0")
        found = earlier.series_so_far(session, cell, None)
        assert found is not None
        assert found.id == "s1"
        assert earlier.series_so_far(session, replace(cell, name="another"), None) is None
        assert earlier.series_so_far(session, replace(cell, requested={"seed": 1}), None) is None
        assert earlier.series_so_far(session, cell, other) is None
