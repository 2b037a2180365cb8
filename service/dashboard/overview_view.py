"""What the first page says: what needs somebody first, then what runs and what ran. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from service.dashboard.badges import Badge, verdict_badge
from service.dashboard.formats import elapsed_s
from service.dashboard.lines import Doing, doing_of
from service.store.glance_records import CellGlance, RunningCell
from service.store.records import LivePhase, SweepState, SweepSummary


@dataclass(frozen=True)
class Failing:
    """A cell that is not ok in the newest sweep of its name. ``new``: in the sweep before it was not so."""

    badge: Badge
    new: bool
    name: str
    sweep: str
    link: str
    reason: str
    at: datetime | None


@dataclass(frozen=True)
class Running:
    """A cell that runs now."""

    name: str
    link: str
    sweep: str
    sweep_link: str
    elapsed_s: float | None
    doing: Sequence[Doing]


@dataclass(frozen=True)
class Recent:
    """A sweep, and how long ago it was submitted."""

    sweep: SweepSummary
    ago_s: float


def newest_by_name(sweeps: Sequence[SweepSummary]) -> dict[str, list[SweepSummary]]:
    """Of each name the newest sweep and the one before; of ``sweeps``, newest first, those that have ended."""
    found: dict[str, list[SweepSummary]] = {}
    for sweep in sweeps:
        if sweep.state is SweepState.ENDED and len(found.setdefault(sweep.name, [])) < 2:
            found[sweep.name].append(sweep)
    return {name: pair for name, pair in found.items() if pair}


def failing(pairs: Mapping[str, Sequence[SweepSummary]], not_ok: Sequence[CellGlance]) -> list[Failing]:
    """What is not ok in the newest sweep of each name: what is new comes first, then what is graver."""
    names = {sweep.id: name for name, pair in pairs.items() for sweep in pair}
    newest = {pair[0].id for pair in pairs.values()}
    before = {pair[1].id: name for name, pair in pairs.items() if len(pair) > 1}
    failed_before = {(before[cell.sweep_id], cell.name) for cell in not_ok if cell.sweep_id in before}
    compared = set(before.values())
    found = [
        (cell, names[cell.sweep_id] in compared and (names[cell.sweep_id], cell.name) not in failed_before)
        for cell in not_ok
        if cell.sweep_id in newest
    ]
    found.sort(key=lambda item: (not item[1], 99 if item[0].verdict is None else item[0].verdict.gravity))
    return [
        Failing(
            badge=verdict_badge(cell.verdict),
            new=new,
            name=cell.name,
            sweep=names[cell.sweep_id],
            link=cell_link(cell.sweep_id, cell.id),
            reason=cell.reason or "",
            at=cell.ended_at,
        )
        for cell, new in found
    ]


def running(cells: Sequence[RunningCell], live: Mapping[str, Sequence[LivePhase]], now: datetime) -> list[Running]:
    """``live``: what ranks do, by the id of the sweep."""
    return [
        Running(
            name=cell.name,
            link=cell_link(cell.sweep_id, cell.id),
            sweep=cell.sweep_name,
            sweep_link=f"sweeps/{quote(cell.sweep_id, safe='')}",
            elapsed_s=elapsed_s(cell.started_at, now),
            doing=[doing_of(phase, now) for phase in live.get(cell.sweep_id, ()) if phase.cell_id == cell.id],
        )
        for cell in cells
    ]


def recent(sweeps: Sequence[SweepSummary], now: datetime) -> list[Recent]:
    """``sweeps`` with their age."""
    return [Recent(sweep, max(0.0, (now - sweep.created_at).total_seconds())) for sweep in sweeps]


def cell_link(sweep_id: str, cell_id: str) -> str:
    """To a cell's page, from the root."""
    return f"sweeps/{quote(sweep_id, safe='')}/cells/{quote(cell_id, safe='')}"
