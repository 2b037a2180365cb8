"""A chart of a series over time: what is drawn, before it is decided how. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple


class Dot(NamedTuple):
    """One point, or ``points`` of them that lie side by side. A tuple, as a page makes thousands.

    ``value``: the median of a cell's starts; of several points their mean. ``low``, ``high``: the fastest and the
    slowest start, of several points those of all. ``link``: to the cell, or to the stretch that holds the points.
    """

    at: datetime
    value: float
    low: float
    high: float
    points: int
    link: str


@dataclass(frozen=True)
class Level:
    """What a figure is held against: its baseline, and the bounds outside of which it is another."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Mark:
    """A moment on the time axis that is worth a word."""

    at: datetime
    text: str


@dataclass(frozen=True)
class Curve:
    """One figure. ``unit``: ``s`` or ``B``. ``total``: points of the stretch, before any were drawn as one."""

    figure: str
    label: str
    unit: str
    dots: Sequence[Dot]
    total: int
    level: Level | None
    steps: Sequence[Mark]


@dataclass(frozen=True)
class Chart:
    """``versions``: when another version of something came."""

    curves: Sequence[Curve]
    versions: Sequence[Mark]
    logarithmic: bool

    @property
    def units(self) -> list[str]:
        """Each is a plot of its own."""
        return list(dict.fromkeys(curve.unit for curve in self.curves))

    @property
    def thinned(self) -> bool:
        """Whether some dot stands for more than one point."""
        return any(dot.points > 1 for curve in self.curves for dot in curve.dots)


def columns(chart: Chart) -> dict[str, Any]:
    """The chart as plain JSON, in columns, for the script that draws it. Times are Unix time in milliseconds."""
    return {
        "logarithmic": chart.logarithmic,
        "thinned": chart.thinned,
        "versions": [_mark(mark) for mark in chart.versions],
        "curves": [_curve(curve) for curve in chart.curves],
    }


def _curve(curve: Curve) -> dict[str, Any]:
    return {
        "figure": curve.figure,
        "label": curve.label,
        "unit": curve.unit,
        "total": curve.total,
        "at": [_milliseconds(dot.at) for dot in curve.dots],
        "value": [dot.value for dot in curve.dots],
        "low": [dot.low for dot in curve.dots],
        "high": [dot.high for dot in curve.dots],
        "link": [dot.link for dot in curve.dots],
        "points": [dot.points for dot in curve.dots],
        "level": None if curve.level is None else [curve.level.low, curve.level.value, curve.level.high],
        "steps": [_mark(mark) for mark in curve.steps],
    }


def _mark(mark: Mark) -> dict[str, Any]:
    return {"at": _milliseconds(mark.at), "text": mark.text}


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
