"""Axes, changes, waterfalls and maps, without a page around them."""

from __future__ import annotations

import pytest

from service.dashboard.axes import NONE, Axis, axes_of, layout_of
from service.dashboard.change import change
from service.dashboard.figures import Figures
from service.dashboard.residual_map import shade
from service.dashboard.waterfall import waterfalls
from service.store import Store
from service.store.glance_records import RunFigures

SHORT, LONG, OTHER = Axis("s", ("1", "2")), Axis("l", ("1", "2", "3")), Axis("o", ("1", "2"))


def keys(*axes: Axis, **asked: str) -> tuple[str | None, ...]:
    """Rows, columns and small multiples of a full product of the axes."""
    cells: list[dict[str, str]] = [{}]
    for axis in axes:
        cells = [{**rest, axis.key: value} for rest in cells for value in axis.values]
    layout = layout_of(axes, cells, **asked)
    return tuple(None if axis is None else axis.key for axis in (layout.y, layout.x, layout.by))


def test_a_long_axis_makes_the_columns_and_else_the_second() -> None:
    assert keys(LONG, SHORT) == ("l", "s", None)
    assert keys(SHORT, LONG) == ("s", "l", None)
    many = Axis("m", tuple(map(str, range(7))))
    assert keys(many, SHORT) == ("s", "m", None)
    assert keys(SHORT, OTHER) == ("s", "o", None)
    assert keys(SHORT, OTHER, LONG) == ("s", "l", "o")
    assert keys(SHORT) == ("s", None, None)
    assert keys() == (None, None, None)
    very_long = Axis("v", tuple(map(str, range(31))))
    assert keys(SHORT, very_long) == ("v", "s", None)


def test_what_is_asked_for_is_kept() -> None:
    assert keys(SHORT, OTHER, LONG, x="s", y="o") == ("o", "s", "l")
    assert keys(SHORT, OTHER, LONG, by="l") == ("s", "o", "l")
    assert keys(SHORT, OTHER, x=NONE, y="o") == ("o", None, "s")
    assert keys(SHORT, OTHER, x="s", y="s") == ("s", "o", None)
    assert keys(SHORT, OTHER, LONG, by=NONE) == ("s", "l", None)
    assert keys(SHORT, OTHER, x="nope") == ("s", "o", None)


def test_axes_are_what_cells_differ_in_those_of_the_matrix_first() -> None:
    cells = [{"a": "1", "b": "1", "c": "1"}, {"a": "1", "b": "2"}, {"b": "1", "a": "1", "c": "1"}]
    found = axes_of(cells, {"matrix": {"c": [1]}})
    assert found == [Axis("c", ("1", "default")), Axis("b", ("1", "2"))]


@pytest.mark.parametrize(
    ("now", "shade", "sign"),
    [(20.0, "d0", "±"), (20.9, "d0", "±"), (21.1, "d1", "▲"), (22.1, "d2", "▲"), (26.0, "d3", "▲"), (15.0, "f3", "▼")],
)
def test_changes_have_shades_and_signs(now: float, shade: str, sign: str) -> None:
    found = change(now, 20.0)
    assert found is not None
    assert (found.shade, found.short[0]) == (shade, sign)


@pytest.mark.parametrize(("now", "baseline"), [(None, 20.0), (20.0, None), (20.0, 0.0)])
def test_without_two_figures_there_is_no_change(now: float | None, baseline: float | None) -> None:
    assert change(now, baseline) is None


@pytest.mark.parametrize(
    ("score", "expected"),
    [(0.0, "s0"), (0.5, "s1"), (3.0, "s2"), (99.0, "s3"), (1e6, "s4"), (1e30, "s5"), (float("nan"), "s5")],
)
def test_scores_have_shades(score: float, expected: str) -> None:
    assert shade(score) == expected


def test_a_start_of_no_time_draws_nothing() -> None:
    nothing = {"total_s": 0.0, "ranks": [{"rank": 0, "total_s": 0.0, "phases": [], "unaccounted_s": 0.0}]}
    assert waterfalls({"cold": nothing, "warm": None}) == []


def test_phases_that_are_short_everywhere_are_drawn_together() -> None:
    def start(total: float, **phases: float) -> dict[str, object]:
        found = [{"name": name, "s": s, "begin": 0.0} for name, s in phases.items()]
        rank = {"rank": 0, "total_s": total, "phases": found, "unaccounted_s": 0.5}
        return {"total_s": total, "ranks": [rank]}

    cold, warm = waterfalls({"cold": start(100.0, a=99.0, b=0.4, c=0.1), "warm": start(10.0, a=0.1, b=9.4)})
    assert [row.name for row in cold.rows] == ["a", "b", "1 smaller phase", "unexplained rest", "total"]
    assert [row.name for row in warm.rows] == ["a", "b", "unexplained rest", "total"]
    assert cold.scale_s == warm.scale_s == 100.0


def test_figures_are_remembered_up_to_a_number(store: Store) -> None:
    figures = Figures(most=2)
    figures._remember({f"run-{number}": RunFigures(cold_s=float(number)) for number in range(3)})
    with store.reading() as session:
        assert figures.of(session, ["run-0", "run-1", "run-2"]) == {
            "run-1": RunFigures(cold_s=1.0),
            "run-2": RunFigures(cold_s=2.0),
        }
