"""A chart as the plots that are drawn here, as SVG, for who has no script: one for each unit. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import NamedTuple

from service.dashboard import ticks
from service.dashboard.amounts import amount
from service.dashboard.scales import across, range_of, up, when
from service.dashboard.trend_chart import Chart, Curve, Dot, Mark

SHAPES = {
    "circle": "m-4,0a4,4,0,1,0,8,0a4,4,0,1,0,-8,0z",
    "square": "m-3.5,-3.5h7v7h-7z",
    "triangle": "m0,-5l-4.5,9h9z",
    "diamond": "m0,-5.5l-4.5,5.5l4.5,5.5l4.5,-5.5z",
    "cross": "m-4,0h8m-4,-4v8",
}
"""Of the curves in turn, as in the script that draws them: no colour is needed to tell them apart. As paths, from the
middle on."""

_KEY = 7
"""The middle of a shape in the legend."""


@dataclass(frozen=True)
class Tick:
    place: float
    text: str


class Spot(NamedTuple):
    """A dot. ``top`` and ``bottom``: where its range ends. ``mark``, ``range``: paths that draw them, none is empty.

    A tuple, as a page makes thousands.
    """

    x: float
    y: float
    top: float
    bottom: float
    link: str
    title: str
    mark: str
    range: str


@dataclass(frozen=True)
class Line:
    """One curve. ``key``: its shape for the legend, as a path. ``path``: points for a polyline.

    ``level``, ``bounds``: heights of what it is held against.
    """

    number: int
    shape: str
    key: str
    label: str
    path: str
    spots: Sequence[Spot]
    level: float | None
    bounds: tuple[float, float] | None
    steps: Sequence[Tick]


@dataclass(frozen=True)
class Plot:
    title: str
    across: Sequence[Tick]
    up: Sequence[Tick]
    versions: Sequence[Tick]
    lines: Sequence[Line]


@dataclass(frozen=True)
class _Frame:
    x: Callable[[datetime], float]
    y: Callable[[float], float]
    when: Callable[[datetime], str]
    """The moment in words."""


def plots(chart: Chart) -> list[Plot]:
    """The plots of ``chart``, those without a dot left out."""
    curves = [curve for curve in chart.curves if curve.dots]
    if not curves:
        return []
    begin = min(curve.dots[0].at for curve in curves)
    end = max(curve.dots[-1].at for curve in curves)
    units = dict.fromkeys(curve.unit for curve in curves)
    return [
        _plot([(number, curve) for number, curve in enumerate(chart.curves) if curve in curves and curve.unit == unit],
              chart, begin, end)
        for unit in units
    ]  # fmt: skip


def _plot(curves: Sequence[tuple[int, Curve]], chart: Chart, begin: datetime, end: datetime) -> Plot:
    unit = curves[0][1].unit
    low, high = range_of([curve for _, curve in curves], chart.logarithmic)
    logarithmic = chart.logarithmic and low > 0
    # Figures were measured in the same nights, so they have their moments in common.
    frame = _Frame(cache(across(begin, end)), up(low, high, logarithmic), cache("{:%Y-%m-%d %H:%M} UTC".format))
    values = ticks.of_decades(low, high) if logarithmic else ticks.of_values(low, high)
    names = ", ".join(curve.label for _, curve in curves)
    return Plot(
        title=f"{names} from {begin:%Y-%m-%d} to {end:%Y-%m-%d}, {'logarithmic' if logarithmic else 'linear'}",
        across=[Tick(frame.x(moment), when(moment, end - begin)) for moment in ticks.of_times(begin, end)],
        up=[Tick(frame.y(value), amount(value, unit)) for value in values],
        versions=[Tick(frame.x(mark.at), mark.text) for mark in chart.versions if begin <= mark.at <= end],
        lines=[_line(number, curve, frame) for number, curve in curves],
    )


def _line(number: int, curve: Curve, frame: _Frame) -> Line:
    level = curve.level
    begin, end = curve.dots[0].at, curve.dots[-1].at
    shape = list(SHAPES)[number % len(SHAPES)]
    spots = [_spot(dot, curve, frame, SHAPES[shape]) for dot in curve.dots]
    return Line(
        number=number,
        shape=shape,
        key=f"M{_KEY},{_KEY}{SHAPES[shape]}",
        label=curve.label,
        path=" ".join(f"{spot.x:.1f},{spot.y:.1f}" for spot in spots),
        spots=spots,
        level=None if level is None else frame.y(level.value),
        bounds=None if level is None else (frame.y(level.high), frame.y(level.low)),
        steps=[_step(mark, frame) for mark in curve.steps if begin <= mark.at <= end],
    )


def _step(mark: Mark, frame: _Frame) -> Tick:
    return Tick(frame.x(mark.at), mark.text)


def _spot(dot: Dot, curve: Curve, frame: _Frame, outline: str) -> Spot:
    x, y, top, bottom = frame.x(dot.at), frame.y(dot.value), frame.y(dot.high), frame.y(dot.low)
    return Spot(
        x=x,
        y=y,
        top=top,
        bottom=bottom,
        link=dot.link,
        title=f"{curve.label}, {frame.when(dot.at)}: {spread(dot, curve.unit)}",
        mark=f"M{x:.1f},{y:.1f}{outline}",
        range=f"M{x:.1f},{top:.1f}V{bottom:.1f}" if top != bottom else "",
    )


def spread(dot: Dot, unit: str) -> str:
    """The value, and how far it spreads; ``20.1 s (19.8 s to 20.4 s)``."""
    several = "" if dot.points == 1 else f"mean of {dot.points} points: "
    within = "" if dot.low == dot.high else f" ({amount(dot.low, unit)} to {amount(dot.high, unit)})"
    return f"{several}{amount(dot.value, unit)}{within}"
