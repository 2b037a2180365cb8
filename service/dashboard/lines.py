"""A cell as lists and heat maps show it, from the store or from a report. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from service.dashboard.badges import Badge, ok_badge, verdict_badge
from service.dashboard.change import Change, change
from service.dashboard.formats import NOTHING, elapsed_s, seconds, value
from service.domain.figures import COLD_S, WARM_S
from service.domain.lifecycle import State
from service.domain.verdict import Verdict
from service.store.glance_records import NO_FIGURES, CellGlance, RunFigures
from service.store.records import LivePhase
from service.store.series_records import PointRecord

Baseline = Mapping[str, float]
"""Seconds that a cell's series takes for normal, by figure: ``cold_s``, ``warm_s``."""

NO_BASELINE: Baseline = {}

TIMES = (COLD_S.name, WARM_S.name)
"""The figures by which cells are shaded."""


@dataclass(frozen=True)
class Doing:
    """What a rank of a running cell does, and for how many seconds."""

    what: str
    elapsed_s: float | None


@dataclass(frozen=True)
class CellLine:
    """``written``: its settings, as they would stand in a matrix. ``elapsed_s``: since it was started, while it runs.

    ``took``: how long one took that has ended. ``short``: warm and cold seconds.
    """

    glance: CellGlance
    written: Mapping[str, str]
    link: str
    state: str
    elapsed_s: float | None
    took: str
    doing: Sequence[Doing]
    verdict: Badge
    ok: Badge
    expect: str
    cold: str
    warm: str
    short: tuple[str, str]
    matched: str
    note: str
    duplicate_of: str | None
    change: Change | None

    @property
    def differs(self) -> bool:
        """Whether there is something to look at: not what was expected, slower, or faster."""
        return self.glance.ok is False or (self.change is not None and self.change.telling)


def lines_of(
    glances: Sequence[CellGlance],
    figures: Mapping[str, RunFigures],
    link: Callable[[CellGlance], str],
    baselines: Mapping[str, Baseline] | None = None,
    live: Sequence[LivePhase] = (),
    now: datetime | None = None,
    others: Mapping[str, str] | None = None,
) -> list[CellLine]:
    """``figures`` by id of the run, ``baselines`` by id of the cell. ``live`` and ``now``: of a sweep that runs.

    ``others``: names of cells that are not among them, by id.
    """
    names = {**(others or {}), **{glance.id: glance.name for glance in glances}}
    doing: dict[str, list[Doing]] = {}
    for phase in live:
        doing.setdefault(phase.cell_id, []).append(doing_of(phase, now))
    return [
        _line(
            glance,
            figures.get(glance.run_id or "", NO_FIGURES),
            link(glance),
            (baselines or {}).get(glance.duplicate_of or glance.id, NO_BASELINE),
            doing.get(glance.id, []),
            names,
            now,
        )
        for glance in glances
    ]


def baselines_of(points: Mapping[str, Sequence[PointRecord]]) -> dict[str, Baseline]:
    """What the points of a sweep were held against as they came, by cell; nothing where that was too little."""
    return {
        cell_id: {point.figure: point.baseline for point in found if point.baseline is not None}
        for cell_id, found in points.items()
    }


def glance_of(cell: Mapping[str, Any], sweep_id: str) -> CellGlance:
    """The same of a cell in a report; as the id of its run it has its own."""
    return CellGlance(
        sweep_id=sweep_id,
        id=cell["id"],
        name=cell["name"],
        requested=cell["requested"],
        expect=tuple(Verdict(verdict) for verdict in cell["expect"]),
        state=State(cell["state"]),
        verdict=None if cell["verdict"] is None else Verdict(cell["verdict"]),
        ok=cell["ok"],
        duplicate_of=cell["duplicate_of"],
        reason=cell["reasons"][0] if cell["reasons"] else None,
        started_at=_time(cell["started_at"]),
        ended_at=_time(cell["ended_at"]),
        run_id=cell["id"],
    )


def figures_in(cell: Mapping[str, Any]) -> RunFigures:
    """What a cell in a report measured."""
    cold, warm = cell["compile"]["cold"] or {}, cell["compile"]["warm"] or {}
    exercised = cell["exercised"]["sequence_parallelism"] or {}
    return RunFigures(
        cold_s=cold.get("total_s"),
        warm_s=warm.get("total_s"),
        cold_repeats=tuple(cold.get("repeats", ())),
        warm_repeats=tuple(warm.get("repeats", ())),
        matched=exercised.get("matched"),
        expected=exercised.get("expected"),
    )


def doing_of(phase: LivePhase, now: datetime | None) -> Doing:
    """What a rank does, and since when."""
    who = " ".join(part for part in (phase.arm, None if phase.rank is None else f"rank {phase.rank}") if part)
    return Doing(f"{who}: {phase.name}", None if now is None else max(0.0, now.timestamp() - phase.at))


def _line(
    glance: CellGlance,
    figures: RunFigures,
    link: str,
    baseline: Baseline,
    doing: Sequence[Doing],
    names: Mapping[str, str],
    now: datetime | None,
) -> CellLine:
    took = elapsed_s(glance.started_at, glance.ended_at)
    original = glance.duplicate_of
    return CellLine(
        glance=glance,
        written={key: value(item) for key, item in glance.requested.items()},
        link=link,
        state=str(glance.state).replace("_", " "),
        elapsed_s=elapsed_s(glance.started_at, now) if glance.ended_at is None else None,
        took="" if took is None else seconds(took),
        doing=doing,
        verdict=verdict_badge(glance.verdict),
        ok=ok_badge(glance.ok),
        expect=" or ".join(glance.expect),
        cold=_spread(figures.cold_s, figures.cold_repeats),
        warm=_spread(figures.warm_s, figures.warm_repeats),
        short=(_short(figures.warm_s), _short(figures.cold_s)),
        matched=_matched(figures),
        note=glance.reason or "",
        duplicate_of=None if original is None else names.get(original, original),
        change=_greater(
            change(figures.cold_s, baseline.get(COLD_S.name)), change(figures.warm_s, baseline.get(WARM_S.name))
        ),
    )


def _greater(cold: Change | None, warm: Change | None) -> Change | None:
    return max((item for item in (cold, warm) if item is not None), key=lambda item: abs(item.ratio), default=None)


def _spread(total_s: float | None, repeats: Sequence[float]) -> str:
    if total_s is None:
        return NOTHING
    spread = f" ({min(repeats):.1f}–{max(repeats):.1f}, {len(repeats)} starts)" if len(repeats) > 1 else ""
    return seconds(total_s) + spread


def _short(total_s: float | None) -> str:
    return NOTHING if total_s is None else f"{total_s:.1f}"


def _matched(figures: RunFigures) -> str:
    counts = (figures.matched, figures.expected)
    if counts == (None, None):
        return NOTHING
    return "/".join("?" if count is None else str(count) for count in counts)


def _time(iso: str | None) -> datetime | None:
    return None if iso is None else datetime.fromisoformat(iso)
