"""What pages show of many cells at once: nothing that a run found out, but for the few figures named here."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from service.domain.lifecycle import State
from service.domain.verdict import Verdict
from workers.protocol import Settings


@dataclass(frozen=True)
class CellGlance:
    """``reason``: the gravest. ``run_id``: the newest attempt at it, or at the cell whose result it shares."""

    sweep_id: str
    id: str
    name: str
    requested: Settings
    expect: tuple[Verdict, ...]
    state: State
    verdict: Verdict | None
    ok: bool | None
    duplicate_of: str | None
    reason: str | None
    started_at: datetime | None
    ended_at: datetime | None
    run_id: str | None = None


@dataclass(frozen=True)
class RunFigures:
    """Seconds of the median cold and warm start and of each, and how often the SP pass matched, of how often it should.

    ``None`` and empty where nothing was measured.
    """

    cold_s: float | None = None
    warm_s: float | None = None
    cold_repeats: tuple[float, ...] = ()
    warm_repeats: tuple[float, ...] = ()
    matched: int | None = None
    expected: int | None = None


NO_FIGURES = RunFigures()


@dataclass(frozen=True)
class RunningCell:
    """A cell that runs now, and whose it is."""

    sweep_id: str
    sweep_name: str
    id: str
    name: str
    started_at: datetime | None
