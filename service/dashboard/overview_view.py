"""What runs and what ran, as the first page shows it. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from service.dashboard.formats import elapsed_s
from service.dashboard.lines import Doing, doing_of
from service.page_paths import cell_page
from service.store.glance_records import RunningCell
from service.store.records import LivePhase, SweepSummary


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


def running(cells: Sequence[RunningCell], live: Mapping[str, Sequence[LivePhase]], now: datetime) -> list[Running]:
    """``live``: what ranks do, by the id of the sweep."""
    return [
        Running(
            name=cell.name,
            link=cell_page(cell.sweep_id, cell.id),
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
