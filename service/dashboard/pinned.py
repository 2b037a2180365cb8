"""Series that the team keeps in view, with a line of their last nights. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service.dashboard.badges import Badge
from service.dashboard.formats import NBSP
from service.domain.figures import figure_of, shown
from service.domain.regression import Condition
from service.store.series_records import Columns, SeriesRecord, StandingRecord

WIDTH, HEIGHT, EDGE = 160, 32, 3
"""Of the line, in its own units."""


@dataclass(frozen=True)
class Standing:
    """A figure of a series. ``line``: its last values as points of a drawing; empty where there are less than two."""

    words: str
    value: str
    badge: Badge
    line: str
    told: str


@dataclass(frozen=True)
class Pinned:
    id: str
    name: str
    device: str
    ok: Badge
    standings: Sequence[Standing]


def pinned(
    series: Sequence[SeriesRecord],
    standings: Sequence[StandingRecord],
    columns: Mapping[tuple[str, str], Columns],
) -> list[Pinned]:
    """``columns``: the last values, by series and figure; figures that have none there are left out."""
    return [
        Pinned(
            id=item.id,
            name=item.name,
            device=item.device,
            ok=Badge("✓", item.last_verdict, "good") if item.last_ok else Badge("✗", item.last_verdict, "bad"),
            standings=[
                _standing(standing, columns[standing.series_id, standing.figure].value)
                for standing in standings
                if standing.series_id == item.id and (standing.series_id, standing.figure) in columns
            ],
        )
        for item in series
    ]


def _standing(standing: StandingRecord, values: Sequence[float]) -> Standing:
    figure = figure_of(standing.figure)
    return Standing(
        words=figure.words,
        value=shown(standing.value, figure.unit),
        badge=_badge(standing),
        line=_line(values),
        told=f"{figure.words}, the last {len(values)} values: {shown(min(values), figure.unit)} to "
        f"{shown(max(values), figure.unit)}"
        if values
        else "",
    )


def _badge(standing: StandingRecord) -> Badge:
    change = "" if standing.ratio is None else f"{standing.ratio - 1:+.0%}".replace("%", f"{NBSP}%")
    match standing.state:
        case Condition.REGRESSION:
            return Badge("▲", f"slower {change}", "bad")
        case Condition.SUSPECTED:
            return Badge("△", f"suspected {change}", "warn")
        case _:
            return Badge("·", change or "no baseline yet", "calm")


def _line(values: Sequence[float]) -> str:
    if len(values) < 2:
        return ""
    lowest, highest = min(values), max(values)
    step = (WIDTH - 2 * EDGE) / (len(values) - 1)
    # A series that does not move is drawn in the middle.
    span = highest - lowest or 1.0
    base = lowest if highest > lowest else lowest - 0.5
    heights = ((HEIGHT - EDGE) - (value - base) / span * (HEIGHT - 2 * EDGE) for value in values)
    return " ".join(f"{EDGE + place * step:.1f},{height:.1f}" for place, height in enumerate(heights))
