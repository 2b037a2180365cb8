"""The chart as the server draws it: every dot where its value is, bounds and versions beside it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from service.dashboard.plots import SHAPES, plots
from service.dashboard.scales import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH
from service.dashboard.trend_chart import Chart, Curve, Dot, Level, Mark, columns

BEGIN = datetime(2026, 11, 1, 2, 30, tzinfo=UTC)


def dot(day: int, value: float, points: int = 1) -> Dot:
    return Dot(BEGIN + timedelta(days=day), value, value * 0.9, value * 1.2, points, f"cell-{day}")


def curve(*values: float, figure: str = "cold_s", unit: str = "s", level: Level | None = None) -> Curve:
    dots = [dot(day, value) for day, value in enumerate(values)]
    return Curve(figure, figure, unit, dots, len(dots), level, ())


def chart(*curves: Curve, logarithmic: bool = False) -> Chart:
    return Chart(list(curves), [Mark(BEGIN + timedelta(days=1), "vllm 1 → 2")], logarithmic)


@pytest.mark.parametrize("logarithmic", [False, True])
def test_dots_are_in_order_inside_and_higher_where_there_is_more(logarithmic: bool) -> None:
    (plot,) = plots(chart(curve(10, 20, 40, 15), logarithmic=logarithmic))
    spots = plot.lines[0].spots
    assert [spot.x for spot in spots] == sorted(spot.x for spot in spots)
    assert spots[0].x == LEFT
    assert spots[-1].x == WIDTH - RIGHT
    assert spots[2].y < spots[1].y < spots[3].y < spots[0].y
    assert all(TOP <= spot.top < spot.y < spot.bottom <= HEIGHT - BOTTOM for spot in spots)
    assert [spot.link for spot in spots] == ["cell-0", "cell-1", "cell-2", "cell-3"]
    assert plot.versions[0].place == spots[1].x


def test_what_draws_a_dot_begins_where_it_is() -> None:
    flat = replace(curve(10, 20), dots=[dot(0, 10), dot(1, 20)._replace(low=20, high=20)])
    (plot,) = plots(chart(flat))
    ranged, alone = plot.lines[0].spots
    assert ranged.mark == f"M{ranged.x},{ranged.y}{SHAPES['circle']}"
    assert ranged.range == f"M{ranged.x},{ranged.top}V{ranged.bottom}"
    assert (alone.top, alone.range) == (alone.bottom, "")
    assert plot.lines[0].path == f"{ranged.x},{ranged.y} {alone.x},{alone.y}"


def test_twice_as_much_is_as_far_wherever_it_is_on_a_logarithmic_axis() -> None:
    (plot,) = plots(chart(curve(10, 20, 40), logarithmic=True))
    heights = [spot.y for spot in plot.lines[0].spots]
    steps = [lower - higher for lower, higher in pairwise(heights)]
    assert steps[0] == pytest.approx(steps[1], abs=0.2)
    (linear,) = plots(chart(curve(10, 20, 40)))
    heights = [spot.y for spot in linear.lines[0].spots]
    assert heights[1] - heights[2] > 1.5 * (heights[0] - heights[1])


def test_bounds_are_around_the_baseline_and_on_the_axis() -> None:
    (plot,) = plots(chart(curve(20, 21, level=Level(20, 15, 30))))
    line = plot.lines[0]
    assert line.bounds is not None
    assert line.level is not None
    assert TOP <= line.bounds[0] < line.level < line.bounds[1] <= HEIGHT - BOTTOM


def test_each_unit_is_a_plot_and_each_curve_keeps_its_colour_and_shape() -> None:
    time, memory, other = curve(10, 11), curve(2**30, 2**31, figure="peak", unit="B"), curve(5, 6, figure="warm_s")
    first, second = plots(chart(time, memory, other))
    assert [(line.number, line.shape) for line in first.lines] == [(0, "circle"), (2, "triangle")]
    assert [(line.number, line.shape) for line in second.lines] == [(1, "square")]
    assert any("GiB" in tick.text for tick in second.up)


@pytest.mark.parametrize("logarithmic", [False, True])
@pytest.mark.parametrize("values", [(7.0,), (7.0, 7.0), (0.0, 0.0), (0.0, 5.0)])
def test_little_can_be_drawn_too(values: tuple[float, ...], logarithmic: bool) -> None:
    (plot,) = plots(chart(curve(*values), logarithmic=logarithmic))
    assert len(plot.lines[0].spots) == len(values)
    assert all(TOP <= spot.y <= HEIGHT - BOTTOM for spot in plot.lines[0].spots)


def test_nothing_is_no_plot() -> None:
    assert plots(chart()) == []
    assert plots(chart(curve())) == []


def test_a_dot_of_several_points_says_so() -> None:
    several = replace(curve(10, 11), dots=[dot(0, 10), dot(1, 11, points=20)])
    (plot,) = plots(chart(several))
    titles = [spot.title for spot in plot.lines[0].spots]
    assert "mean of" not in titles[0]
    assert "mean of 20 points: 11.0 s (9.90 s to 13.2 s)" in titles[1].replace("\N{NO-BREAK SPACE}", " ")
    assert chart(several).thinned
    assert not chart(curve(10, 11)).thinned


def test_columns_hold_every_dot() -> None:
    found = columns(chart(curve(10, 20, level=Level(10, 9, 11))))
    (item,) = found["curves"]
    assert item["at"] == [round((BEGIN + timedelta(days=day)).timestamp() * 1000) for day in (0, 1)]
    assert (item["value"], item["low"], item["high"]) == ([10, 20], [9, 18], [12, 24])
    assert item["level"] == [9, 10, 11]
    assert found["versions"] == [{"at": item["at"][1], "text": "vllm 1 → 2"}]
