"""The rules by which a figure has become worse or better, night by night."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.domain.change_points import change_points
from service.domain.regression import Condition, Judged, Night, Rules, Turn, replay

RULES = Rules()
STEADY = [20.0, 20.2, 19.8, 20.1, 19.9, 20.0, 20.2, 19.9]


def nights(values: Sequence[float]) -> list[Night]:
    return [Night(place, place * 86_400.0, value) for place, value in enumerate(values)]


def judged(values: Sequence[float], rules: Rules = RULES, floor: float = 0.5) -> list[Judged]:
    return replay(nights(values), rules, floor)


def turns(found: Sequence[Judged]) -> list[tuple[int, Turn]]:
    return [(place, one.turn) for place, one in enumerate(found) if one.turn is not None]


def noisy(count: int, noise: float, seed: int = 7) -> list[float]:
    chance = random.Random(seed)
    return [20.0 * chance.lognormvariate(0, noise) for _ in range(count)]


def test_with_too_little_data_nothing_is_said_but_how_many_nights_are_missing() -> None:
    found = judged([20.0, 60.0, 20.0, 60.0])
    assert [one.condition for one in found] == [Condition.TOO_LITTLE_DATA] * 4
    assert [one.missing for one in found] == [4, 3, 2, 1]
    assert {(one.baseline, one.lower, one.upper, one.ratio) for one in found} == {(None, None, None, None)}


def test_what_is_steady_is_steady() -> None:
    found = judged(STEADY)
    assert [one.condition for one in found[4:]] == [Condition.STEADY] * 4
    assert turns(found) == []
    assert found[-1].baseline is not None
    assert found[-1].baseline.value == 20.0
    assert found[-1].missing == 0


def test_two_nights_in_a_row_are_a_regression_and_one_is_a_suspicion() -> None:
    found = judged([*STEADY, 23.0, 23.2, 23.1])
    assert turns(found) == [(8, Turn.SUSPECTED), (9, Turn.REGRESSION)]
    assert [one.condition for one in found[8:]] == [Condition.SUSPECTED, Condition.REGRESSION, Condition.REGRESSION]
    assert found[10].since == Night(8, 8 * 86_400.0, 23.0)
    assert found[9].level == pytest.approx(23.1, abs=0.01)
    assert found[9].ratio == pytest.approx(1.16)


@pytest.mark.parametrize("wanted", [1, 3])
def test_how_many_nights_it_takes_is_a_rule(wanted: int) -> None:
    found = judged([*STEADY, 23.0, 23.2, 23.1, 23.0], replace(RULES, nights=wanted))
    assert (7 + wanted, Turn.REGRESSION) in turns(found)
    assert Turn.REGRESSION not in [turn for place, turn in turns(found) if place < 7 + wanted]


def test_a_spike_is_no_regression_and_leaves_no_trace() -> None:
    found = judged([*STEADY, 60.0, *STEADY, 60.0, *STEADY])
    assert turns(found) == [(8, Turn.SUSPECTED), (17, Turn.SUSPECTED)]
    assert found[-1].condition is Condition.STEADY
    assert found[-1].baseline is not None
    assert found[-1].baseline.value == pytest.approx(20.0)
    assert found[-1].baseline.noise < 0.02


@pytest.mark.parametrize(
    ("step", "floor", "found"),
    [(0.04, 0.0, False), (0.06, 0.0, True), (0.06, 2.0, False), (0.12, 2.0, True)],
)
def test_both_the_ratio_and_the_floor_have_to_be_passed(step: float, floor: float, found: bool) -> None:
    values = [20.0] * 10 + [20.0 * (1 + step)] * 3
    assert ((11, Turn.REGRESSION) in turns(judged(values, floor=floor))) is found


def test_the_same_step_is_none_where_the_nights_scatter_as_much() -> None:
    quiet = [20.0 * (1 + 0.01 * sign) for sign in (1, -1, 0, 1, -1, 0) * 2]
    loud = [20.0 * (1 + 0.10 * sign) for sign in (1, -1, 0, 1, -1, 0) * 2]
    step = [22.0, 22.0]
    assert Turn.REGRESSION in [turn for _, turn in turns(judged([*quiet, *step]))]
    assert turns(judged([*loud, *step])) == []


def test_many_slightly_worse_nights_say_what_two_cannot() -> None:
    values = [20.0 * (1 + 0.04 * sign) for sign in (1, -1, 0, 1, -1, 0) * 4]
    found = judged([*values, *[21.7] * 4])
    assert [place for place, turn in turns(found) if turn is Turn.REGRESSION] == [len(values) + 2]


def test_a_regression_is_told_once_lasts_and_ends_when_two_nights_are_better() -> None:
    found = judged([*STEADY, 23.0, 23.2, 23.1, 19.9, 23.0, 20.0, 20.1, 20.0])
    assert turns(found)[1:] == [(9, Turn.REGRESSION), (14, Turn.RECOVERED)]
    assert [one.condition for one in found[9:14]] == [Condition.REGRESSION] * 5
    assert [one.worse for one in found[9:14]] == [True, True, False, True, False]
    assert found[-1].baseline == found[7].baseline


def test_an_improvement_takes_three_nights_and_is_the_baseline_from_its_first_one() -> None:
    found = judged([*STEADY, *[16.0] * 6, 20.0, 20.0])
    assert turns(found) == [(10, Turn.IMPROVEMENT), (14, Turn.SUSPECTED), (15, Turn.REGRESSION)]
    assert found[10].since is not None
    assert found[10].since.id == 8
    assert [one.condition for one in found[11:13]] == [Condition.TOO_LITTLE_DATA, Condition.STEADY]
    assert found[13].baseline is not None
    assert (found[13].baseline.value, found[13].first.id) == (16.0, 8)


def test_a_slow_drift_is_found_since_the_baseline_stays() -> None:
    values = [20.0 * (1 + 0.001 * place) * (1.005 if place % 2 else 0.995) for place in range(200)]
    (place, turn), *_ = [one for one in turns(judged(values)) if one[1] is Turn.REGRESSION]
    assert turn is Turn.REGRESSION
    assert 80 < place < 140


def test_what_jumps_between_two_levels_is_not_found_over_and_over() -> None:
    chance = random.Random(3)
    values = [20.0 * (1.15 if chance.random() < 0.3 else 1.0) * chance.lognormvariate(0, 0.01) for _ in range(365)]
    assert sum(turn is Turn.REGRESSION for _, turn in turns(judged(values))) <= 3


@pytest.mark.parametrize("noise", [0.03, 0.08])
def test_pure_noise_makes_hardly_an_alarm_a_year(noise: float) -> None:
    years = [judged(noisy(365, noise, seed)) for seed in range(12)]
    alarms = [turn for year in years for _, turn in turns(year) if turn in (Turn.REGRESSION, Turn.IMPROVEMENT)]
    assert len(alarms) <= 2 * len(years)
    loose = [judged(noisy(365, noise, seed), replace(RULES, strength=1.0, ratio=0.0)) for seed in range(12)]
    assert sum(turn is Turn.REGRESSION for year in loose for _, turn in turns(year)) > 5 * len(years)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 1e-300]) | st.floats(0, 1e300, allow_nan=False), min_size=1, max_size=60),
    st.floats(0, 10),
)
def test_whatever_was_measured_each_night_is_judged(values: list[float], floor: float) -> None:
    found = judged(values, floor=floor)
    assert [one.night.value for one in found] == values
    for one in found:
        assert (one.baseline is None) is (one.upper is None)
        assert one.lower is None or one.upper is None or 0 <= one.lower <= one.upper < math.inf
        assert (one.missing > 0) >= (one.baseline is None)


def test_what_took_no_time_and_takes_some_now_is_held_to_the_floor() -> None:
    found = judged([*[0.0] * 8, 0.4, 0.0, 0.7, 0.7], floor=0.5)
    assert turns(found) == [(10, Turn.SUSPECTED), (11, Turn.REGRESSION)]
    assert found[7].upper == pytest.approx(0.5)
    assert found[7].ratio is None


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(1, 100), min_size=12, max_size=40), st.integers(1, 39))
def test_a_night_is_judged_by_what_was_known_then(values: list[float], end: int) -> None:
    assert judged(values)[:end] == judged(values[:end])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(1, 100), min_size=12, max_size=40), st.sampled_from([0.25, 4.0, 1024.0]))
def test_the_unit_makes_no_difference(values: list[float], unit: float) -> None:
    scaled = judged([value * unit for value in values], floor=0.5 * unit)
    assert [one.condition for one in scaled] == [one.condition for one in judged(values)]


# --- looking back ----------------------------------------------------------------------------------------------------


def test_change_points_are_where_the_level_changed() -> None:
    values = [*noisy(40, 0.02), *(1.15 * value for value in noisy(40, 0.02, 8)), *noisy(40, 0.02, 9)]
    first, second = change_points(values)
    assert abs(first.index - 40) <= 1
    assert abs(second.index - 80) <= 1
    assert first.after / first.before == pytest.approx(1.15, abs=0.02)
    assert second.after / second.before == pytest.approx(1 / 1.15, abs=0.02)


@pytest.mark.parametrize("new", range(2, 11))
@pytest.mark.parametrize("ratio", [0.6, 1.55])
def test_a_change_of_level_is_dated_to_its_first_night(new: int, ratio: float) -> None:
    values = [*[8.0] * (12 - new), *[8.0 * ratio] * new]
    (change,) = change_points(values)
    assert change.index == 12 - new
    assert (change.before, change.after) == (8.0, 8.0 * ratio)


@pytest.mark.parametrize(
    "values", [[], [20.0], STEADY[:5], [20.0] * 50, [0.0] * 20, [*[20.0] * 20, 60.0, *[20.0] * 20]]
)
def test_without_a_change_of_level_there_is_none(values: list[float]) -> None:
    assert change_points(values) == []


def test_noise_alone_has_hardly_a_change_of_level() -> None:
    assert sum(len(change_points(noisy(200, 0.08, seed))) for seed in range(10)) <= 2
