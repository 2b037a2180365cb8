"""Where moments and values lie in a plot, in its own units. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from service.dashboard.trend_chart import Curve

WIDTH, HEIGHT = 900, 280
LEFT, RIGHT, TOP, BOTTOM = 76, 14, 22, 32

_FREE = 0.04
"""Part of the range that is left free above and below."""


def range_of(curves: Sequence[Curve], logarithmic: bool) -> tuple[float, float]:
    """What the axis shows: all dots with their ranges, and what they are held against."""
    dots = [dot for curve in curves for dot in curve.dots]
    levels = [curve.level for curve in curves if curve.level is not None]
    low = min(dot.low for dot in dots)
    high = max(dot.high for dot in dots)
    low = min([low, *(level.low for level in levels if level.low > 0 or not logarithmic)])
    high = max([high, *(level.high for level in levels)])
    if low == high:
        low, high = (low * 0.9, high * 1.1) if low > 0 else (low - 1, high + 1)
    if logarithmic and low > 0:
        part = (high / low) ** _FREE
        return low / part, high * part
    free = (high - low) * _FREE
    return (low - free if low - free > 0 or low < 0 else 0.0), high + free


def across(begin: datetime, end: datetime) -> Callable[[datetime], float]:
    """Where a moment lies, from the left."""
    span = (end - begin).total_seconds()
    width = WIDTH - LEFT - RIGHT

    def place(moment: datetime) -> float:
        part = (moment - begin).total_seconds() / span if span else 0.5
        return round(LEFT + width * part, 1)

    return place


def up(low: float, high: float, logarithmic: bool) -> Callable[[float], float]:
    """Where a value lies, from the top."""
    scale: Callable[[float], float] = math.log if logarithmic else float
    bottom, top = scale(low), scale(high)
    height = HEIGHT - TOP - BOTTOM

    def place(value: float) -> float:
        # What a logarithm has no place for lies on the axis.
        part = (scale(max(value, low)) - bottom) / (top - bottom)
        return round(HEIGHT - BOTTOM - height * part, 1)

    return place


def when(moment: datetime, span: timedelta) -> str:
    """A tick of an axis over so long a time."""
    return f"{moment:%Y-%m-%d}" if span >= timedelta(days=2) else f"{moment:%m-%d %H:%M}"
