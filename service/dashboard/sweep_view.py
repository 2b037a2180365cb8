"""A sweep as its page shows it: what is worked out before the template starts. No I/O, no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from service.dashboard.axes import NONE, Axis, axes_of, layout_of
from service.dashboard.badges import Badge, verdict_badge
from service.dashboard.change import LEGEND
from service.dashboard.filters import ALL, NOT_YET, Filter
from service.dashboard.formats import plural
from service.dashboard.heat import HeatMap, heat_map
from service.dashboard.lines import CellLine

ROWS = 100
"""Cells in a page of the list. The heat map has them all."""


@dataclass(frozen=True)
class SweepHead:
    """What is known of a sweep without its cells."""

    id: str
    name: str
    created_at: datetime
    ended_at: datetime | None
    artifacts_removed_at: datetime | None
    matrix: Mapping[str, Any]


@dataclass(frozen=True)
class VerdictCount:
    """A verdict, how many cells have it, and the address that shows or hides them."""

    badge: Badge
    count: int
    address: str
    chosen: bool


@dataclass(frozen=True)
class AxisChoice:
    """An axis with its values, each with whether only cells that have it are shown."""

    axis: Axis
    values: Sequence[tuple[str, bool]]


@dataclass(frozen=True)
class SweepView:
    """``filter``: with the axes that are shown. ``shown``: how many cells the filter leaves, of ``cells``."""

    head: SweepHead
    filter: Filter
    axes: Sequence[AxisChoice]
    cells: int
    ended: int
    ok: int
    unexpected: int
    progress: str
    verdicts: Sequence[VerdictCount]
    remarks: Sequence[str]
    heat: HeatMap | None
    compared: bool
    legend: Sequence[tuple[str, str]]
    shown: int
    rows: Sequence[CellLine]
    older: str | None
    newer: str | None


def sweep_view(head: SweepHead, lines: Sequence[CellLine], asked: Filter = ALL, rows: int = ROWS) -> SweepView:
    """The page of a sweep; ``rows``: cells in a page of its list."""
    written = [line.written for line in lines]
    axes = axes_of(written, head.matrix)
    layout = layout_of(axes, written, asked.x, asked.y, asked.by)
    shown = asked.apply(lines)
    begin = (asked.page - 1) * rows
    return SweepView(
        head=head,
        filter=replace(asked, x=_key(layout.x), y=_key(layout.y), by=_key(layout.by)),
        axes=[_choice(axis, asked) for axis in axes],
        cells=len(lines),
        ended=sum(line.glance.state.ended for line in lines),
        ok=sum(line.glance.ok is True for line in lines),
        unexpected=sum(line.glance.ok is False for line in lines),
        progress=_progress(lines),
        verdicts=_verdicts(lines, asked),
        remarks=asked.remarks(axes, layout),
        heat=heat_map(layout, shown) if layout.y is not None and shown else None,
        compared=any(line.change is not None for line in lines),
        legend=LEGEND,
        shown=len(shown),
        rows=shown[begin : begin + rows],
        older=asked.address(page=asked.page + 1) if begin + rows < len(shown) else None,
        newer=asked.address(page=asked.page - 1) if asked.page > 1 else None,
    )


def _key(axis: Axis | None) -> str:
    return NONE if axis is None else axis.key


def _progress(lines: Sequence[CellLine]) -> str:
    ended = sum(line.glance.state.ended for line in lines)
    ok, unexpected = (sum(line.glance.ok is wanted for line in lines) for wanted in (True, False))
    return f"{ended} of {plural(len(lines), 'cell')} ended: {ok} ok, {unexpected} unexpected"


def _verdicts(lines: Sequence[CellLine], asked: Filter) -> list[VerdictCount]:
    """Gravest first; those that are asked for stand there also when no cell has them."""
    counts = Counter(NOT_YET if line.glance.verdict is None else str(line.glance.verdict) for line in lines)
    gravity = {str(line.glance.verdict): line.glance.verdict.gravity for line in lines if line.glance.verdict}
    names = sorted({*counts, *asked.verdicts}, key=lambda name: (gravity.get(name, len(gravity) + 99), name))
    return [
        VerdictCount(
            badge=verdict_badge(None if name == NOT_YET else name),
            count=counts[name],
            address=asked.toggled(name),
            chosen=name in asked.verdicts,
        )
        for name in names
    ]


def _choice(axis: Axis, asked: Filter) -> AxisChoice:
    return AxisChoice(axis, [(value, f"{axis.key}={value}" in asked.values) for value in axis.values])
