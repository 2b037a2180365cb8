"""A report as its page shows it: what is worked out before the template starts. No I/O, no clock."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from service.domain.lifecycle import State
from service.domain.verdict import Verdict
from service.store.records import LivePhase

Json = Mapping[str, Any]

NOTHING = "—"
"""Stands for what was not looked at; a zero is a measurement."""


@dataclass(frozen=True)
class Badge:
    """A word with a sign, so that the colour (``tone``: good, bad, warn, calm) is not needed to read it."""

    sign: str
    text: str
    tone: str


@dataclass(frozen=True)
class PhaseTable:
    """Seconds per rank and phase of one arm; the columns add up to the total."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class CellView:
    """One row of the table and the details below it; ``cell`` is the cell in the report."""

    anchor: str
    cell: Json
    state: str
    live: Sequence[str]
    verdict: Badge
    ok: Badge
    expect: str
    cold: str
    warm: str
    exercised: str
    note: str
    duplicate_of: str | None
    phases: Sequence[PhaseTable]


@dataclass(frozen=True)
class SweepView:
    sweep: Json
    ended: bool
    progress: str
    by_verdict: Sequence[tuple[Badge, int]]
    cells: Sequence[CellView]


def sweep_view(report: Json, live: Sequence[LivePhase] = (), now: datetime | None = None) -> SweepView:
    """The page of ``report``. ``live`` and ``now`` are for a sweep that still runs."""
    cells = report["cells"]
    names = {cell["id"]: cell["name"] for cell in cells}
    return SweepView(
        sweep=report["sweep"],
        ended=report["sweep"]["ended_at"] is not None,
        progress=_progress(report),
        by_verdict=[(_verdict(verdict), count) for verdict, count in report["summary"]["by_verdict"].items()],
        cells=[
            _cell(f"cell-{place}", cell, names, [phase for phase in live if phase.cell_id == cell["id"]], now)
            for place, cell in enumerate(cells, start=1)
        ],
    )


def seconds(value: Any) -> str:
    """``12.3 s``, kept on one line; a value that is absent is a dash."""
    return NOTHING if value is None else f"{float(value):.1f}\N{NO-BREAK SPACE}s"


def value(item: Any) -> str:
    """A setting as it would stand in a matrix."""
    return json.dumps(item, ensure_ascii=False)


def held(guard: Json) -> Badge:
    """Whether a guard held."""
    if guard["held"] is None:
        return Badge("?", "not checked", "calm")
    return Badge("✓", "held", "good") if guard["held"] else Badge("✗", "broken", "bad")


def divergence(found: Json) -> str:
    """Where the residual goes wrong first."""
    return f"{found['pattern']} at {found['site']}, rank {found['rank']}"


def _progress(report: Json) -> str:
    summary = report["summary"]
    ended = sum(State(cell["state"]).ended for cell in report["cells"])
    return f"{ended} of {summary['cells']} cells ended: {summary['ok']} ok, {summary['unexpected']} unexpected"


def _cell(
    anchor: str, cell: Json, names: Mapping[str, str], live: Sequence[LivePhase], now: datetime | None
) -> CellView:
    original = cell["duplicate_of"]
    return CellView(
        anchor=anchor,
        cell=cell,
        state=_state(cell, now),
        live=_live(live, now),
        verdict=_verdict(cell["verdict"]),
        ok=_ok(cell["ok"]),
        expect=" or ".join(cell["expect"]),
        cold=_total(cell, "cold"),
        warm=_total(cell, "warm"),
        exercised=_exercised(cell["exercised"]["sequence_parallelism"]),
        note=_note(cell),
        duplicate_of=None if original is None else names.get(original, original),
        phases=[_phase_table(arm, times) for arm, times in cell["compile"].items() if times is not None],
    )


def _verdict(verdict: str | None) -> Badge:
    match verdict:
        case None:
            return Badge("…", "not yet", "calm")
        case Verdict.PASS:
            return Badge("✓", verdict, "good")
        case Verdict.DUPLICATE:
            return Badge("=", verdict, "calm")
        case Verdict.CANCELLED | Verdict.SKIPPED:
            return Badge("○", verdict, "calm")
        case Verdict.DOWNGRADED | Verdict.REGRESSION | Verdict.UNSUPPORTED:
            return Badge("▲", verdict, "warn")
        case _:
            return Badge("✗", verdict, "bad")


def _ok(ok: bool | None) -> Badge:
    if ok is None:
        return Badge("…", "not yet", "calm")
    return Badge("✓", "ok", "good") if ok else Badge("✗", "unexpected", "bad")


def _live(phases: Sequence[LivePhase], now: datetime | None) -> list[str]:
    return [_live_phase(phase, now) for phase in phases]


def _live_phase(phase: LivePhase, now: datetime | None) -> str:
    who = " ".join(part for part in (phase.arm, None if phase.rank is None else f"rank {phase.rank}") if part)
    since = "" if now is None else f" ({seconds(max(0.0, now.timestamp() - phase.at))})"
    return f"{who}: {phase.name}{since}"


def _state(cell: Json, now: datetime | None) -> str:
    state = str(cell["state"]).replace("_", " ")
    end = now if cell["ended_at"] is None else datetime.fromisoformat(cell["ended_at"])
    if cell["started_at"] is None or end is None:
        return state
    # Stamps of the wall clock, which may have been set back in between.
    return f"{state}, {seconds(max(0.0, (end - datetime.fromisoformat(cell['started_at'])).total_seconds()))}"


def _total(cell: Json, arm: str) -> str:
    times = cell["compile"][arm]
    if times is None:
        return NOTHING
    repeats = times.get("repeats", [])
    spread = f" ({times['min_s']:.1f}–{times['max_s']:.1f}, {len(repeats)} starts)" if len(repeats) > 1 else ""
    return seconds(times["total_s"]) + spread


def _exercised(found: Json | None) -> str:
    if found is None:
        return NOTHING
    return "/".join("?" if found[key] is None else str(found[key]) for key in ("matched", "expected"))


def _note(cell: Json) -> str:
    residual = cell["residual"]
    if residual is not None and residual["first_divergence"] is not None:
        return divergence(residual["first_divergence"])
    return str(cell["reasons"][0]) if cell["reasons"] else ""


def _phase_table(arm: str, times: Json) -> PhaseTable:
    repeats = times.get("repeats", [])
    names = list(dict.fromkeys(phase["name"] for rank in times["ranks"] for phase in rank["phases"]))
    return PhaseTable(
        title=f"{arm}, median of {len(repeats)} starts" if len(repeats) > 1 else arm,
        columns=["phase", *(f"rank {rank['rank']}" for rank in times["ranks"])],
        rows=[
            *([name, *(seconds(_spent(rank, name)) for rank in times["ranks"])] for name in names),
            ["unaccounted", *(seconds(rank["unaccounted_s"]) for rank in times["ranks"])],
            ["total", *(seconds(rank["total_s"]) for rank in times["ranks"])],
        ],
    )


def _spent(rank: Json, name: str) -> float | None:
    spent = [phase["s"] for phase in rank["phases"] if phase["name"] == name]
    return sum(spent) if spent else None
