"""Cells laid out over two axes, and over a third as small multiples. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.dashboard.axes import UNWRITTEN, Axis, Layout
from service.dashboard.lines import CellLine


@dataclass(frozen=True)
class HeatRow:
    """``slots``: for each column the cells that lie there."""

    value: str
    slots: Sequence[Sequence[CellLine]]


@dataclass(frozen=True)
class Facet:
    """One table. ``value``: on the axis of the small multiples; empty where there are none."""

    value: str
    columns: Sequence[str]
    rows: Sequence[HeatRow]


@dataclass(frozen=True)
class HeatMap:
    layout: Layout
    facets: Sequence[Facet]


def heat_map(layout: Layout, lines: Sequence[CellLine]) -> HeatMap:
    """Only values are shown that one of ``lines`` has."""
    columns, rows = _values(layout.x, lines), _values(layout.y, lines)
    return HeatMap(layout, [_facet(layout, value, columns, rows, lines) for value in _values(layout.by, lines)])


def _facet(layout: Layout, value: str, columns: Sequence[str], rows: Sequence[str], lines: Sequence[CellLine]) -> Facet:
    places: dict[tuple[str, str], list[CellLine]] = {}
    for line in lines:
        if _on(layout.by, line) == value:
            places.setdefault((_on(layout.y, line), _on(layout.x, line)), []).append(line)
    return Facet(
        value=value,
        columns=columns,
        rows=[HeatRow(row, [places.get((row, column), []) for column in columns]) for row in rows],
    )


def _values(axis: Axis | None, lines: Sequence[CellLine]) -> list[str]:
    had = {_on(axis, line) for line in lines}
    return [value for value in ([""] if axis is None else axis.values) if value in had]


def _on(axis: Axis | None, line: CellLine) -> str:
    return "" if axis is None else line.written.get(axis.key, UNWRITTEN)
