"""The axes that a sweep's cells can be laid out over, and which of them a page is asked to show. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.dashboard.formats import value

NONE = "-"
"""In an address: no axis here."""

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


def axis_value(requested: Mapping[str, Any], key: str) -> str:
    """What a cell has on the axis ``key``."""
    return value(requested[key]) if key in requested else UNWRITTEN


def axes_of(requested: Sequence[Mapping[str, Any]], matrix: Mapping[str, Any]) -> list[Axis]:
    """The settings in which cells differ: those that the matrix calls axes first, in its order."""
    written = matrix.get("matrix")
    named = list(written) if isinstance(written, Mapping) else []
    keys = dict.fromkeys([*named, *(key for settings in requested for key in settings)])
    found = (Axis(key, _distinct(axis_value(settings, key) for settings in requested)) for key in keys)
    return [axis for axis in found if len(axis.values) > 1]


def layout_of(
    axes: Sequence[Axis], requested: Sequence[Mapping[str, Any]], x: str = "", y: str = "", by: str = ""
) -> Layout:
    """Where ``x``, ``y`` and ``by`` name axes, these; what is empty or unknown is chosen.

    Rows are the first axis, columns the next. A third one makes small multiples where cells would share a place.
    """
    rows = _chosen(axes, y, ()) or _first(axes, y, {x, by})
    columns = _chosen(axes, x, (rows,)) or _first(axes, x, {by, rows.key if rows else ""})
    facets = _chosen(axes, by, (rows, columns))
    if facets is None and by != NONE and _crowded(requested, rows, columns):
        facets = _first(axes, by, {axis.key for axis in (rows, columns) if axis is not None})
    return Layout(columns, rows, facets)


def _chosen(axes: Sequence[Axis], key: str, taken: Iterable[Axis | None]) -> Axis | None:
    return next((axis for axis in axes if axis.key == key and axis not in taken), None)


def _first(axes: Sequence[Axis], asked: str, taken: Iterable[str]) -> Axis | None:
    taken = set(taken)
    return None if asked == NONE else next((axis for axis in axes if axis.key not in taken), None)


def _crowded(requested: Sequence[Mapping[str, Any]], *axes: Axis | None) -> bool:
    keys = [axis.key for axis in axes if axis is not None]
    places = {tuple(axis_value(settings, key) for key in keys) for settings in requested}
    return len(places) < len(requested)


def _distinct(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
