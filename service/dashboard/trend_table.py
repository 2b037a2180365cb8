"""The nights of a series as its page lists them, and those from which on a figure can be accepted. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from service.dashboard.amounts import amount, label_of, unit_of
from service.dashboard.badges import Badge, verdict_badge
from service.dashboard.formats import NOTHING
from service.dashboard.trends_view import cell_link, version_words
from service.domain.verdict import Verdict
from service.store.repositories.histories import HistoryPoint, HistoryRow


@dataclass(frozen=True)
class Row:
    """A night. ``cell``: link from the page. ``key``: sweep and cell, as the comparison takes them."""

    at: datetime
    cell: str
    key: str
    verdict: Badge
    amounts: Sequence[str]
    versions: str


@dataclass(frozen=True)
class Acceptable:
    """A point from which on a figure may be accepted as it is."""

    key: str
    text: str


def rows(found: Sequence[HistoryRow], figures: Sequence[str]) -> list[Row]:
    """The table, newest first; each night says which versions are others than the night before."""
    older = [*found[1:], None][: len(found)]
    return [
        Row(
            at=row.at,
            cell=cell_link(row.sweep_id, row.cell_id),
            key=f"{row.sweep_id}/{row.cell_id}",
            verdict=verdict_badge(Verdict(row.verdict)),
            amounts=[_amount(row.figures.get(figure), figure) for figure in figures],
            # They are not known where an environment could not be had.
            versions=version_words(before.versions, row.versions)
            if before and before.versions and row.versions
            else "",
        )
        for row, before in zip(found, older, strict=True)
    ]


def _other_versions(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """They are not known where an environment could not be had."""
    return version_words(before, after) if before and after else ""


def _amount(point: HistoryPoint | None, figure: str) -> str:
    if point is None:
        return NOTHING
    unit = unit_of(figure)
    if point.repeats == 1:
        return amount(point.value, unit)
    return f"{amount(point.value, unit)} ({amount(point.lowest, unit)} to {amount(point.highest, unit)})"


def acceptable(found: Sequence[HistoryRow], judged: Iterable[str]) -> list[Acceptable]:
    """Points of judged figures, newest first."""
    return [
        Acceptable(f"{figure}:{point.id}", f"{label_of(figure)}, {row.at:%Y-%m-%d %H:%M} UTC: {_amount(point, figure)}")
        for figure in sorted(judged)
        for row in found
        if (point := row.figures.get(figure)) is not None
    ]
