"""The axes that a sweep's cells can be laid out over, and which of them a page is asked to show. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NONE = "-"
"""In an address: no axis here."""

FEW_COLUMNS, MOST_COLUMNS = 6, 30
"""An axis with more values than the first makes columns, so that a page is not long; with more than the second rows, as
a page is scrolled downwards sooner than to the side."""

UNWRITTEN = "default"
"""Stands for a setting that a cell does not have; a text that is written would stand in quotes."""


@dataclass(frozen=True)
class Axis:
    """``values``: as they would stand in a matrix, in the order in which cells have them."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """Columns, rows and small multiples, each an axis or none."""

    x: Axis | None
    y: Axis | None
    by: Axis | None


Written = Mapping[str, str]
"""Settings of a cell, each as it would stand in a matrix."""


def axes_of(cells: Sequence[Written], matrix: Mapping[str, Any]) -> list[Axis]:
    """The settings in which cells differ: those that the matrix calls axes first, in its order."""
    axes = matrix.get("matrix")
    named = list(axes) if isinstance(axes, Mapping) else []
    keys = dict.fromkeys([*named, *(key for written in cells for key in written)])
    found = (Axis(key, _distinct(written.get(key, UNWRITTEN) for written in cells)) for key in keys)
    return [axis for axis in found if len(axis.values) > 1]


def layout_of(axes: Sequence[Axis], cells: Sequence[Written], x: str = "", y: str = "", by: str = "") -> Layout:
    """Where ``x``, ``y`` and ``by`` name axes, these; what is empty or unknown is chosen.

    Axes with more values are chosen before others, so that few cells share a place. Of two the first makes the rows; a
    long one makes the columns, unless it is very long. A third one makes small multiples where cells would still share
    a place.
    """
    longest = sorted(axes, key=lambda axis: -len(axis.values))
    named = [_named(axes, key) for key in (y, x, by)]
    free = [axis for axis in longest if axis not in named]
    rows, columns = named[0], named[1] if named[1] is not named[0] else None
    if rows is None and columns is None and NONE not in (x, y):
        rows, columns = _pair(axes, free)
    else:
        rows = rows or (None if y == NONE else _take(free))
        columns = columns or (None if x == NONE else _take(free))
    facets = named[2] if named[2] not in (rows, columns) else None
    if facets is None and by != NONE and _crowded(cells, rows, columns):
        facets = _take([axis for axis in free if axis not in (rows, columns)])
    return Layout(columns, rows, facets)


def _pair(axes: Sequence[Axis], longest: Sequence[Axis]) -> tuple[Axis | None, Axis | None]:
    """Rows and columns."""
    if len(longest) < 2:
        return (longest[0] if longest else None), None
    first, second = longest[:2]
    if FEW_COLUMNS < len(first.values) <= MOST_COLUMNS:
        return second, first
    if len(first.values) > MOST_COLUMNS or axes.index(first) < axes.index(second):
        return first, second
    return second, first


def _take(free: list[Axis]) -> Axis | None:
    return free.pop(0) if free else None


def _named(axes: Sequence[Axis], key: str) -> Axis | None:
    return next((axis for axis in axes if axis.key == key), None)


def _crowded(cells: Sequence[Written], *axes: Axis | None) -> bool:
    keys = [axis.key for axis in axes if axis is not None]
    return len({tuple(written.get(key, UNWRITTEN) for key in keys) for written in cells}) < len(cells)


def _distinct(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
