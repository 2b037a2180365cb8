"""Where the seconds of a cold and a warm start went, rank by rank, on one scale. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.dashboard.formats import plural, seconds

Json = Mapping[str, Any]

SMALL = 0.01
"""A phase that takes a smaller part of the longest start than this on every rank is drawn with others like it."""

WIDTH, BAR, STEP = 1000, 7, 9
"""Of the drawing, in its own units: all of it, a bar's height, and from one rank's bar to the next one's."""

REST, TOTAL = "unexplained rest", "total"


@dataclass(frozen=True)
class Bar:
    """``hue``: one of eight, by rank."""

    hue: int
    x: float
    y: int
    width: float
    text: str


@dataclass(frozen=True)
class Row:
    """``kind``: phase, small (several together), rest or total. ``figures``: seconds on each rank."""

    name: str
    kind: str
    bars: Sequence[Bar]
    figures: Sequence[str]


@dataclass(frozen=True)
class Table:
    """Every phase with its seconds on each rank; the columns add up to the total."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Waterfall:
    """One start. ``scale_s``: how many seconds the whole width is."""

    title: str
    ranks: Sequence[int]
    scale_s: float
    height: int
    rows: Sequence[Row]
    table: Table


def waterfalls(times: Mapping[str, Json | None]) -> list[Waterfall]:
    """One for each start in ``times`` that was measured; ``times`` is ``compile`` of a cell in the report."""
    measured = {arm: start for arm, start in times.items() if start is not None}
    scale_s = max((start["total_s"] for start in measured.values()), default=0.0)
    if scale_s <= 0:
        return []
    large = _large(measured.values(), scale_s)
    return [_waterfall(arm, start, scale_s, large) for arm, start in measured.items()]


def _large(starts: Iterable[Json], scale_s: float) -> list[str]:
    """Names of the phases that get a row of their own, in the order in which they first begin."""
    names: dict[str, bool] = {}
    for start in starts:
        for phase in sorted(_phases(start), key=_begin):
            names[phase["name"]] = names.get(phase["name"], False) or phase["s"] >= SMALL * scale_s
    return [name for name, large in names.items() if large]


def _waterfall(arm: str, start: Json, scale_s: float, large: Sequence[str]) -> Waterfall:
    ranks = start["ranks"]
    small = [name for name in dict.fromkeys(phase["name"] for phase in _phases(start)) if name not in large]
    rows = [_phase_row(name, ranks, scale_s) for name in large]
    if small:
        rows.append(_small_row(small, ranks))
    repeats = start.get("repeats", [])
    return Waterfall(
        title=f"{arm}, median of {len(repeats)} starts" if len(repeats) > 1 else arm,
        ranks=[rank["rank"] for rank in ranks],
        scale_s=scale_s,
        height=STEP * len(ranks),
        rows=[*rows, _rest_row(ranks, scale_s), _total_row(ranks, scale_s)],
        table=_table(ranks),
    )


def _phase_row(name: str, ranks: Sequence[Json], scale_s: float) -> Row:
    found = [next((phase for phase in rank["phases"] if phase["name"] == name), None) for rank in ranks]
    spent = [_spent(rank, name) for rank in ranks]
    bars = [
        _bar(place, _begin(phase), spent_s or 0.0, scale_s, f"rank {rank['rank']}: {name} {seconds(spent_s)}")
        for place, (rank, phase, spent_s) in enumerate(zip(ranks, found, spent, strict=True))
        if phase is not None and phase.get("begin") is not None
    ]
    return Row(name, "phase", bars, [seconds(item) for item in spent])


def _small_row(names: Sequence[str], ranks: Sequence[Json]) -> Row:
    spent = [sum(_spent(rank, name) or 0.0 for name in names) for rank in ranks]
    return Row(plural(len(names), "smaller phase"), "small", [], [seconds(item) for item in spent])


def _rest_row(ranks: Sequence[Json], scale_s: float) -> Row:
    bars = [
        _bar(place, rank["total_s"] - rank["unaccounted_s"], rank["unaccounted_s"], scale_s,
             f"rank {rank['rank']}: in no phase {seconds(rank['unaccounted_s'])}")
        for place, rank in enumerate(ranks)
        if rank["unaccounted_s"] > 0
    ]  # fmt: skip
    return Row(REST, "rest", bars, [seconds(rank["unaccounted_s"]) for rank in ranks])


def _total_row(ranks: Sequence[Json], scale_s: float) -> Row:
    bars = [
        _bar(place, 0.0, rank["total_s"], scale_s, f"rank {rank['rank']}: in all {seconds(rank['total_s'])}")
        for place, rank in enumerate(ranks)
    ]
    return Row(TOTAL, "total", bars, [seconds(rank["total_s"]) for rank in ranks])


def _bar(place: int, begin_s: float, s: float, scale_s: float, text: str) -> Bar:
    x = max(0.0, begin_s) / scale_s * WIDTH
    # What is there can be seen, however short it was.
    width = max(s / scale_s * WIDTH, 2.0)
    return Bar(place % 8, round(min(x, WIDTH - 2.0), 1), place * STEP + 1, round(min(width, WIDTH - x), 1), text)


def _table(ranks: Sequence[Json]) -> Table:
    names = list(dict.fromkeys(phase["name"] for rank in ranks for phase in rank["phases"]))
    return Table(
        columns=["phase", *(f"rank {rank['rank']}" for rank in ranks)],
        rows=[
            *([name, *(seconds(_spent(rank, name)) for rank in ranks)] for name in names),
            ["unaccounted", *(seconds(rank["unaccounted_s"]) for rank in ranks)],
            ["total", *(seconds(rank["total_s"]) for rank in ranks)],
        ],
    )


def _spent(rank: Json, name: str) -> float | None:
    spent = [phase["s"] for phase in rank["phases"] if phase["name"] == name]
    return sum(spent) if spent else None


def _phases(start: Json) -> Iterable[Json]:
    return (phase for rank in start["ranks"] for phase in rank["phases"])


def _begin(phase: Json | None) -> float:
    return 0.0 if phase is None or phase.get("begin") is None else float(phase["begin"])
