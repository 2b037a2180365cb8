"""Series, their points, and what people say of them, in the database."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from service.domain.notices import NoticeKind
from service.domain.regression import Condition
from service.domain.verdict import Verdict
from service.store import Store, repositories
from service.store.records import UnknownRecord
from service.store.series_records import ForeignPoint, NewNotice, NotJudged, PointRecord
from store.nights import VERSIONS, add_night, add_nights, night, series, sweep_of
from store.samples import add_sweep

STEADY = [20.0, 20.2, 19.8, 20.1, 19.9, 20.0, 20.2]
STEP = [*STEADY, 24.0, 24.2]


def points(store: Store, figure: str = "cold_s", series_id: str = "s1") -> list[PointRecord]:
    with store.reading() as session:
        return repositories.series_points.points_of(session, series_id, [figure])


def test_a_series_comes_back_as_its_newest_outcome_left_it(store: Store) -> None:
    add_night(store, 0, {"cold_s": 20.0})
    add_night(store, 1, {}, replace(series(), name="renamed"), verdict=Verdict.CRASHED)
    with store.reading() as session:
        found = repositories.series.get_series(session, "s1")
        listed = repositories.series.list_series(session, 10)
    assert (found.name, found.last_verdict, found.last_ok) == ("renamed", Verdict.CRASHED, False)
    assert (found.created_at, found.last_at, found.pinned) == (night(0), night(1), False)
    assert found.settings == {"tensor_parallel_size": 2}
    assert listed == [found]


def test_series_are_listed_by_name_in_pages_and_found_by_a_part_of_it(store: Store) -> None:
    for series_id, name in (("3", "b"), ("1", "b"), ("2", "a_c"), ("4", "ABC")):
        add_night(store, 0, {"cold_s": 1.0}, series(series_id, name), cell=series_id)
    with store.reading() as session:
        whole = [item.id for item in repositories.series.list_series(session, 10)]
        pages = [item.id for item in repositories.series.list_series(session, 2)]
        pages += [item.id for item in repositories.series.list_series(session, 10, after=pages[-1])]
        found = {item.id for item in repositories.series.list_series(session, 10, text="B")}
        exact = [item.id for item in repositories.series.list_series(session, 10, text="_")]
        with pytest.raises(UnknownRecord):
            repositories.series.list_series(session, 10, after="nope")
    assert pages == whole
    assert whole.index("1") + 1 == whole.index("3")
    assert found == {"1", "3", "4"}
    assert exact == ["2"]


def test_pinned_and_failing_series_are_found(store: Store) -> None:
    for number, verdict in enumerate((Verdict.PASS, Verdict.FAIL_RESIDUAL)):
        add_night(store, 0, {}, series(f"s{number}", f"n{number}"), cell=f"c{number}", verdict=verdict)
    with store.transaction() as session:
        repositories.series_said.set_pinned(session, "s0", True)
    with store.reading() as session:
        assert [item.id for item in repositories.series.list_series(session, 10, pinned=True)] == ["s0"]
        assert [item.id for item in repositories.series.list_series(session, 10, pinned=False)] == ["s1"]
        assert [item.id for item in repositories.series.list_series(session, 10, ok=False)] == ["s1"]
    with pytest.raises(UnknownRecord), store.transaction() as session:
        repositories.series_said.set_pinned(session, "nope", True)


def test_points_come_in_time_order_with_what_they_were_measured_with(store: Store) -> None:
    add_night(store, 1, {"warm_s": 5.0, "cold_s": 21.0}, versions={"vllm": "0.31.0"})
    add_night(store, 0, {"cold_s": 20.0})
    with store.reading() as session:
        every = repositories.series_points.points_of(session, "s1", None)
        later = repositories.series_points.points_of(session, "s1", ["cold_s"], since=night(1))
        earlier = repositories.series_points.points_of(session, "s1", ["cold_s"], until=night(1))
        first = repositories.series_points.points_of(session, "s1", None, limit=1)
    assert [(item.figure, item.value) for item in every] == [("cold_s", 20.0), ("cold_s", 21.0), ("warm_s", 5.0)]
    assert [item.value for item in later] == [21.0]
    assert [item.value for item in earlier] == [item.value for item in first] == [20.0]
    assert (every[0].lowest, every[0].highest, every[0].repeats) == (20.0 * 0.99, 20.0 * 1.02, 3)
    assert (every[1].at, every[1].sweep_id, every[1].cell_id, every[1].run_id) == (night(1), sweep_of(1), "c0", "run-1")
    assert [item.versions["vllm"] for item in every] == [VERSIONS["vllm"], "0.31.0", "0.31.0"]


def test_columns_are_the_same_points(store: Store) -> None:
    add_nights(store, STEADY)
    found = points(store)
    with store.reading() as session:
        columns = repositories.series_points.columns_of(session, "s1", "cold_s")
        none = repositories.series_points.columns_of(session, "s1", "warm_s")
    assert columns.id == [item.id for item in found]
    assert columns.at == [item.at.timestamp() for item in found]
    assert columns.value == STEADY
    assert (columns.lowest, columns.highest) == ([item.lowest for item in found], [item.highest for item in found])
    assert none.at == none.value == []


def test_a_cell_that_is_run_again_replaces_its_outcome(store: Store) -> None:
    add_night(store, 0, {"cold_s": 20.0, "warm_s": 5.0})
    add_night(store, 0, {"cold_s": 22.0})
    with store.reading() as session:
        found = repositories.series_points.points_of(session, "s1", None)
        outcomes = repositories.series.outcomes_of(session, "s1", 10)
    assert [(item.figure, item.value) for item in found] == [("cold_s", 22.0)]
    assert len(outcomes) == 1


def test_of_two_cells_in_one_sweep_the_later_counts_as_its_night(store: Store) -> None:
    add_nights(store, [20.0] * 5)
    add_night(store, 5, {"cold_s": 30.0}, cell="c0")
    add_night(store, 5, {"cold_s": 30.0}, cell="c1")
    with store.reading() as session:
        assert repositories.series_state.state_of(session, "s1").figures["cold_s"].standing.state is Condition.SUSPECTED
    add_night(store, 6, {"cold_s": 30.0})
    with store.reading() as session:
        standing = repositories.series_state.state_of(session, "s1").figures["cold_s"].standing
        assert standing.state is Condition.REGRESSION


def test_the_state_says_what_the_newest_point_is_held_against(store: Store) -> None:
    add_nights(store, STEP)
    with store.reading() as session:
        state = repositories.series_state.state_of(session, "s1")
        standing = state.figures["cold_s"].standing
        attention = repositories.series_state.attention(session, 10)
    assert set(state.figures) == {"cold_s"}
    assert standing.state is Condition.REGRESSION
    assert standing.baseline == 20.0
    assert standing.lower is not None
    assert standing.upper is not None
    assert standing.lower < 20.0 < standing.upper < 24.0
    assert standing.ratio == pytest.approx(1.21)
    assert (standing.since_at, standing.since_sweep_id) == (night(7), sweep_of(7))
    assert attention == [standing]
    assert [item.baseline for item in points(store)] == [None] * 4 + [20.0] * 5


def test_too_little_data_is_said_with_what_is_missing(store: Store) -> None:
    add_nights(store, [20.0, 20.0])
    with store.reading() as session:
        standing = repositories.series_state.state_of(session, "s1").figures["cold_s"].standing
        assert repositories.series_state.attention(session, 10) == []
    assert (standing.state, standing.points, standing.missing) == (Condition.TOO_LITTLE_DATA, 2, 3)
    assert standing.baseline is standing.upper is standing.ratio is None


def test_an_accepted_step_is_the_baseline_of_what_follows(store: Store) -> None:
    add_nights(store, [*STEP, 24.1])
    step = points(store)[7]
    with store.transaction() as session:
        made = repositories.series_said.accept(session, "s1", "cold_s", step.id, "new compiler", "ann", now=night(20))
    with store.reading() as session:
        state = repositories.series_state.state_of(session, "s1").figures["cold_s"]
    assert state.accepted == made
    assert (made.from_at, made.value, made.reason, made.author) == (night(7), 24.0, "new compiler", "ann")
    assert (state.standing.state, state.standing.missing) == (Condition.TOO_LITTLE_DATA, 2)
    assert state.standing.from_at == night(7)
    for number in (10, 11, 12):
        add_night(store, number, {"cold_s": 24.2})
    with store.reading() as session:
        assert repositories.series_state.state_of(session, "s1").figures["cold_s"].standing.state is Condition.STEADY


def test_only_points_of_a_judged_figure_can_be_accepted(store: Store) -> None:
    add_night(store, 0, {"cold_s": 20.0, "rank_spread_s": 0.1})
    add_night(store, 0, {"cold_s": 20.0}, series("s2", "other"), cell="c1")
    cold, spread, foreign = (
        points(store)[0].id,
        points(store, "rank_spread_s")[0].id,
        points(store, series_id="s2")[0].id,
    )
    refused: list[tuple[str, int, type[Exception]]] = [
        ("rank_spread_s", spread, NotJudged),
        ("warm_s", cold, ForeignPoint),
        ("cold_s", foreign, UnknownRecord),
        ("cold_s", 12345, UnknownRecord),
    ]
    for figure, point, error in refused:
        with pytest.raises(error), store.transaction() as session:
            repositories.series_said.accept(session, "s1", figure, point, "why", "ann")
    with store.reading() as session:
        assert repositories.series_said.accepted(session, "s1") == {}


def test_a_mute_has_an_end_and_a_later_one_takes_its_place(store: Store) -> None:
    add_nights(store, STEADY)
    with store.transaction() as session:
        repositories.series_said.mute(session, "s1", night(30), "known", "ann", now=night(10))
    with store.reading() as session:
        assert repositories.series_state.state_of(session, "s1", now=night(29)).muted_until == night(30)
        assert repositories.series_said.is_muted(session, "s1", night(29))
        assert not repositories.series_said.is_muted(session, "s1", night(30))
    with store.transaction() as session:
        repositories.series_said.mute(session, "s1", night(11) + timedelta(seconds=1), "fixed", "bob", now=night(11))
    with store.reading() as session:
        state = repositories.series_state.state_of(session, "s1", now=night(12))
    assert state.muted_until is None
    assert [(item.author, item.reason) for item in state.mutes] == [("bob", "fixed"), ("ann", "known")]


def test_notices_are_read_newest_first_by_kind_and_series(store: Store) -> None:
    add_nights(store, STEADY)
    kinds = (NoticeKind.SUSPECTED, NoticeKind.REGRESSION, NoticeKind.HANG)
    with store.transaction() as session:
        for number, kind in enumerate(kinds):
            repositories.outcomes.add_notice(
                session,
                NewNotice(
                    at=night(number),
                    kind=kind,
                    series_id="s1" if number < 2 else None,
                    figure="cold_s",
                    sweep_id=sweep_of(number),
                    cell_id="c0",
                    what=f"notice {number}",
                    before=20.0,
                    after=24.0,
                    ratio=1.2,
                    since_sweep_id=sweep_of(0),
                    versions_before={"vllm": "0.30.0"},
                    versions_after={"vllm": "0.31.0"},
                ),
            )
    with store.reading() as session:
        read = repositories.series_notices.notices
        every = read(session, 10)
        assert [item.kind for item in every] == list(reversed(kinds))
        assert [item.what for item in read(session, 10, before=every[0].id)] == ["notice 1", "notice 0"]
        assert [item.what for item in read(session, 10, after=every[1].id)] == ["notice 2"]
        assert [item.what for item in read(session, 10, kinds=[NoticeKind.SUSPECTED])] == ["notice 0"]
        assert [item.what for item in read(session, 10, series_id="s1")] == ["notice 1", "notice 0"]
        assert len(read(session, 2)) == 2
    assert (every[1].at, every[1].before, every[1].after, every[1].since_sweep_id) == (
        night(1),
        20.0,
        24.0,
        sweep_of(0),
    )
    assert (every[1].versions_before, every[1].versions_after) == ({"vllm": "0.30.0"}, {"vllm": "0.31.0"})


def test_the_series_of_a_cell_is_that_of_the_cell_whose_result_it_shares(store: Store) -> None:
    add_sweep(store, sweep_of(0), cells=3)
    with store.transaction() as session:
        repositories.set_duplicate(session, sweep_of(0), "c1", of="c0")
    add_night(store, 0, {"cold_s": 20.0})
    with store.reading() as session:
        found = [repositories.series.series_of_cell(session, sweep_of(0), cell) for cell in ("c0", "c1", "c2", "nope")]
    assert found == ["s1", "s1", None, None]


def test_the_figures_of_a_sweep_are_read_at_once_with_what_they_were_held_against(store: Store) -> None:
    add_nights(store, STEP)
    add_night(store, 8, {"cold_s": 7.0, "warm_s": 2.0, "cold.dynamo": 1.0}, series("s2", "other"), cell="c1")
    with store.reading() as session:
        found = repositories.series_points.points_of_sweep(session, sweep_of(8))
        none = repositories.series_points.points_of_sweep(session, "nope")
    assert {cell: [item.figure for item in items] for cell, items in found.items()} == {
        "c0": ["cold_s"],
        "c1": ["cold_s", "warm_s"],
    }
    assert found["c0"][0].ratio == pytest.approx(1.21)
    assert found["c1"][0].ratio is None
    assert none == {}
