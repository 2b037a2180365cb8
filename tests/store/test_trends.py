"""The history of a series as pages draw it, on both databases: few dots for many points, and none left out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import pytest
from sqlalchemy import select

from service.domain.verdict import Verdict
from service.reads.plans import watched
from service.store import Store
from service.store.database import create_engine, upgrade
from service.store.repositories import histories, trends
from service.store.repositories.trends import Drawn, Stretch, VersionChange
from service.store.series_models import NumberRow
from store.nights import add_night, add_nights, night, series, sweep_of

OTHER = {"vllm": "0.31.0", "torch": "2.10.0"}


@pytest.fixture
def nights(store: Store) -> Store:
    """Twelve nights of two figures and a phase, one night of a crash, a new vLLM in the middle; and another series."""
    for number in range(12):
        versions = {} if number < 6 else {"versions": OTHER}
        if number == 4:
            add_night(store, number, {}, verdict=Verdict.CRASHED)
            continue
        figures = {"cold_s": 20.0 + number, "warm_s": 6.0, "cold.dynamo": 3.0}
        add_night(store, number, figures, **versions)  # type: ignore[arg-type]
    add_night(store, 3, {"cold_s": 99.0}, of=series("s2", "another"), cell="c1")
    return store


def test_few_points_are_dots_of_their_own(nights: Store) -> None:
    with nights.reading() as session:
        found = trends.dots(session, "s1", "cold_s", Stretch())
    assert [dot.value for dot in found] == [20.0 + number for number in range(12) if number != 4]
    assert [dot.sweep_id for dot in found] == [sweep_of(number) for number in range(12) if number != 4]
    assert {(dot.cell_id, dot.points) for dot in found} == {("c0", 1)}
    assert all(dot.lowest < dot.value < dot.highest and dot.begin == dot.end for dot in found)


def test_a_stretch_has_both_its_ends(nights: Store) -> None:
    with nights.reading() as session:
        found = trends.dots(session, "s1", "cold_s", Stretch(night(2), night(5)))
        rows = histories.history(session, "s1", ["cold_s"], Stretch(night(2), night(5)), 50)
    assert [dot.value for dot in found] == [22, 23, 25]
    assert [row.sweep_id for row in rows] == [sweep_of(number) for number in (5, 4, 3, 2)]


@pytest.mark.parametrize("most", [1, 3, 10])
def test_of_many_points_neighbours_are_one_dot_and_no_extreme_is_lost(
    nights: Store, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    with nights.reading() as session:
        single = trends.dots(session, "s1", "cold_s", Stretch())
        monkeypatch.setattr(trends, "DOTS", most)
        found = trends.dots(session, "s1", "cold_s", Stretch())
    assert len(found) <= most < len(single)
    assert sum(dot.points for dot in found) == len(single)
    assert min(dot.lowest for dot in found) == min(dot.lowest for dot in single)
    assert max(dot.highest for dot in found) == max(dot.highest for dot in single)
    total = sum(dot.value * dot.points for dot in found)
    assert total == pytest.approx(sum(dot.value for dot in single))
    assert [dot.begin for dot in found] == sorted(dot.begin for dot in found)
    for dot in found:
        inside = [other for other in single if dot.begin <= other.begin <= dot.end]
        assert len(inside) == dot.points
        assert dot.sweep_id is None


def plainly_thinned(single: Sequence[Drawn], most: int) -> list[tuple[object, ...]]:
    """What ``trends.dots`` makes of dots, without a database."""
    begin = single[0].begin.timestamp()
    width = (single[-1].begin.timestamp() - begin) / most + 1e-6
    places = groupby(single, key=lambda dot: int((dot.begin.timestamp() - begin) / width))
    return [told_of([*group]) for _, group in places]


def told_of(dots: Sequence[Drawn]) -> tuple[object, ...]:
    return (
        dots[0].begin,
        dots[-1].end,
        sum(dot.value for dot in dots) / len(dots),
        min(dot.lowest for dot in dots),
        max(dot.highest for dot in dots),
        len(dots),
        max(dot.outcome for dot in dots),
    )


@pytest.mark.parametrize("most", [2, 3, 4, 7])
def test_dots_are_what_they_are_when_worked_out_by_hand(
    nights: Store, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    with nights.reading() as session:
        single = trends.dots(session, "s1", "cold_s", Stretch())
        monkeypatch.setattr(trends, "DOTS", most)
        found = trends.dots(session, "s1", "cold_s", Stretch())
    assert [tuple(dot)[:7] for dot in found] == plainly_thinned(single, most)
    assert plainly_thinned(single, most) != plainly_thinned(single, most + 1)


def test_figures_that_are_drawn_together_share_the_dots(nights: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trends, "DOTS", 6)
    with nights.reading() as session:
        found = {number: trends.dots(session, "s1", "cold_s", Stretch(), number) for number in (1, 2, 4, 100)}
    points = {number: sum(dot.points for dot in dots) for number, dots in found.items()}
    assert found[1] == found[2]
    assert len(found[100]) < len(found[4]) < len(found[1])
    assert len(set(points.values())) == 1, "and none is left out"


def test_a_point_that_comes_or_is_replaced_is_drawn_at_once(nights: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn() -> list[tuple[int, float]]:
        with nights.reading() as session:
            return [(dot.points, dot.highest) for dot in trends.dots(session, "s1", "cold_s", Stretch())]

    monkeypatch.setattr(trends, "DOTS", 3)
    before = drawn()
    add_night(nights, 11, {"cold_s": 500.0}, versions=OTHER)
    replaced = drawn()
    assert sum(points for points, _ in replaced) == sum(points for points, _ in before)
    assert max(highest for _, highest in replaced) == pytest.approx(510.0)
    add_night(nights, 12, {"cold_s": 900.0}, versions=OTHER)
    assert sum(points for points, _ in drawn()) == sum(points for points, _ in before) + 1
    assert max(highest for _, highest in drawn()) == pytest.approx(918.0)


def test_many_points_are_drawn_from_the_index_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each point of a figure lies on another page of the table: twenty thousand of them are as many pages to read."""
    url = f"sqlite:///{tmp_path / 's.db'}"
    upgrade(url)
    engine = create_engine(url)
    store = Store(engine)
    monkeypatch.setattr(trends, "DOTS", 3)
    add_nights(store, [20.0 + number for number in range(12)])
    with watched(engine) as seen, store.reading() as session:
        trends.dots(session, "s1", "cold_s", Stretch())
    (query,) = [query for query in seen if "GROUP BY" in query.text]

    def plan() -> str:
        with engine.connect() as connection:
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query.text}", query.parameters)
            return " ".join(str(row[-1]) for row in rows)

    found = plan()
    assert "USING COVERING INDEX ix_points_drawn" in found
    assert "TEMP B-TREE" not in found, "what comes in order is not sorted"
    # An index on what is looked for alone leads to the table.
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP INDEX ix_points_drawn")
        connection.exec_driver_sql("CREATE INDEX ix_points_bare ON points (series_id, figure, at)")
    engine.dispose()
    assert "COVERING" not in plan()


def test_there_is_a_number_for_every_dot(store: Store) -> None:
    """A dot without one would be left out, with all its points."""
    with store.reading() as session:
        assert list(session.scalars(select(NumberRow.number).order_by(NumberRow.number))) == list(range(trends.DOTS))


def test_points_of_one_moment_are_one_dot(nights: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    add_night(nights, 7, {"cold_s": 50.0}, cell="c9")
    monkeypatch.setattr(trends, "DOTS", 1)
    with nights.reading() as session:
        (dot,) = trends.dots(session, "s1", "cold_s", Stretch(night(7), night(7)))
    assert (dot.points, dot.begin, dot.end) == (2, night(7), night(7))


def test_versions_change_once(nights: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def changes(series_id: str, since: int = 0) -> list[VersionChange]:
        with nights.reading() as session:
            found = trends.dots(session, series_id, "cold_s", Stretch(since=night(since)))
            return trends.version_changes(session, [dot.outcome for dot in found])

    (change,) = changes("s1")
    assert (change.at, change.before["vllm"], change.after["vllm"]) == (night(6), "0.30.0", "0.31.0")
    assert changes("s1", since=6) == changes("s2") == []
    monkeypatch.setattr(trends, "DOTS", 3)
    (change,) = changes("s1")
    assert night(6) <= change.at <= night(9)
    assert (change.before["vllm"], change.after["vllm"]) == ("0.30.0", "0.31.0")
