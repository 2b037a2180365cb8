"""The report of a sweep, ``shardproof.report/1``: what is stored, in the shape that others read.

Keys are stable: they are added, never renamed. What was not looked at is ``None``, never zero. Every value is plain
JSON; a number that JSON does not have (a residual score that is not finite) is its name in a string.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from service.domain.secrecy import masked
from service.domain.time_notes import skew
from service.store import repositories
from service.store.plain import finite
from service.store.records import CellRecord, RunRecord, SweepRecord
from workers.protocol import (
    DEFAULT,
    ArmReport,
    Change,
    CompileTimes,
    Environment,
    Evidence,
    Failure,
    OutputComparison,
    Patch,
    PatchState,
    Residual,
    Role,
    TimedStart,
    Traces,
)

SCHEMA = "shardproof.report/1"

Json = dict[str, Any]


def build_report(
    sweep: SweepRecord, cells: Sequence[CellRecord], runs: Sequence[RunRecord], matrix: str = "MATRIX"
) -> Json:
    """The report of ``sweep`` as far as it has come.

    ``runs`` are the newest attempts, at most one for each cell. ``matrix`` is the name of the matrix file in the
    command lines that reproduce a cell.
    """
    plain: Json = finite(_report(sweep, cells, runs, matrix))
    return plain


def stored_report(session: Session, sweep_id: str, matrix: str = "MATRIX") -> Json:
    """The report of a stored sweep as far as it has come, see ``build_report``.

    Raises:
        UnknownRecord: if there is no such sweep.
    """
    sweep = repositories.get_sweep(session, sweep_id)
    return build_report(
        sweep, repositories.cells_of(session, sweep_id), repositories.latest_runs(session, sweep_id), matrix
    )


def stored_report_text(session: Session, sweep_id: str) -> str:
    """The same as JSON text, which takes a third of the time where there is much evidence."""
    sweep = repositories.get_sweep(session, sweep_id)
    cells, runs = repositories.cells_of(session, sweep_id), repositories.latest_runs(session, sweep_id)
    report = _report(sweep, cells, runs, "MATRIX")
    try:
        return json.dumps(report, allow_nan=False)
    except ValueError:
        return json.dumps(finite(report), allow_nan=False)


def _report(sweep: SweepRecord, cells: Sequence[CellRecord], runs: Sequence[RunRecord], matrix: str) -> Json:
    """Numbers that JSON does not have are numbers still."""
    run_of = {run.cell_id: run for run in runs}
    return {
        "schema": SCHEMA,
        "sweep": _sweep(sweep),
        "summary": _summary(cells),
        "cells": [_cell(cell, run_of.get(cell.duplicate_of or cell.id), sweep, matrix) for cell in cells],
    }


def _sweep(sweep: SweepRecord) -> Json:
    return {
        "id": sweep.id,
        "name": sweep.name,
        "created_at": _time(sweep.created_at),
        "ended_at": _time(sweep.ended_at),
        "state": str(sweep.state),
        "matrix": masked(sweep.matrix),
        "artifacts_removed_at": _time(sweep.artifacts_removed_at),
    }


def _summary(cells: Sequence[CellRecord]) -> Json:
    found = Counter(str(cell.verdict) for cell in cells if cell.verdict is not None)
    return {
        "cells": len(cells),
        "ok": sum(cell.ok is True for cell in cells),
        "unexpected": sum(cell.ok is False for cell in cells),
        "by_verdict": dict(sorted(found.items())),
    }


def _cell(cell: CellRecord, run: RunRecord | None, sweep: SweepRecord, matrix: str) -> Json:
    evidence = None if run is None else run.evidence
    return {
        "id": cell.id,
        "name": cell.name,
        "requested": masked(dict(cell.requested)),
        "effective": masked(cell.effective),
        "changes": [_change(change) for change in cell.changes],
        "problems": [problem.model_dump(mode="json") for problem in cell.problems],
        "expect": [str(verdict) for verdict in cell.expect],
        "state": str(cell.state),
        "started_at": _time(cell.started_at),
        "ended_at": _time(cell.ended_at),
        "verdict": None if cell.verdict is None else str(cell.verdict),
        "ok": cell.ok,
        "reasons": _reasons(cell, sweep),
        "duplicate_of": cell.duplicate_of,
        "failure": None if run is None else run.failure,
        **_evidence(evidence, kept=sweep.artifacts_removed_at is None),
        "environment": _environment(cell, evidence, sweep),
        "reproduce": shlex.join(["shardproof", "run", matrix, "--cell", cell.name]),
    }


def _change(change: Change) -> Json:
    shown = change.model_dump(mode="json")
    return {**shown, **{side: masked(shown[side], change.key) for side in ("requested", "effective")}}


def _reasons(cell: CellRecord, sweep: SweepRecord) -> list[str]:
    """As they were found. What they name of the sweep's folder may be gone since."""
    names_files = any(sweep.id in reason for reason in cell.reasons)
    if sweep.artifacts_removed_at is None or not names_files:
        return list(cell.reasons)
    when = _time(sweep.artifacts_removed_at)
    return [*cell.reasons, f"note: the files of this sweep were removed at {when}; those named above are gone"]


def _evidence(evidence: Evidence | None, kept: bool) -> Json:
    """``kept``: the files that the arms left are still there."""
    if evidence is None:
        return {
            "arms": [],
            "exercised": {"sequence_parallelism": None},
            "compile": {"cold": None, "warm": None},
            "starts": [],
            "fallback": None,
            "residual": None,
            "outputs": None,
            "guards": [],
            "invariants": [],
            "accuracy": None,
        }
    return {
        "arms": [_arm(arm, kept) for arm in evidence.arms],
        "exercised": evidence.exercised.model_dump(mode="json"),
        "compile": {"cold": _times(evidence.compile.cold), "warm": _times(evidence.compile.warm)},
        "starts": [_start(start) for start in evidence.compile.starts],
        "fallback": None if evidence.fallback is None else evidence.fallback.model_dump(mode="json"),
        "residual": _residual(evidence.residual),
        "outputs": _outputs(evidence.outputs),
        "guards": [guard.model_dump(mode="json") for guard in evidence.guards],
        "invariants": [item.model_dump(mode="json") for item in evidence.invariants],
        "accuracy": None if evidence.accuracy is None else evidence.accuracy.model_dump(mode="json"),
    }


def _arm(arm: ArmReport, kept: bool) -> Json:
    shown = arm if kept or arm.failure is None else _without_files(arm, arm.failure)
    keys = {"role", "outcome", "wall_s", "failure", "peak_rss_bytes", "repeat", "clock_set_by_s"}
    plain = shown.model_dump(mode="json", include=keys)
    return {**plain, "traces": _traces(arm, arm.traces) if kept and arm.traces is not None else None}


def _without_files(arm: ArmReport, failure: Failure) -> ArmReport:
    return arm.model_copy(update={"failure": failure.model_copy(update={"stacks": None})})


def _traces(arm: ArmReport, traces: Traces) -> Json:
    """With the folder that the paths are in."""
    return {"folder": arm.folder, **traces.model_dump(mode="json")}


def _times(times: CompileTimes | None) -> Json | None:
    return None if times is None else {**times.model_dump(mode="json"), "skew": skew(times.ranks)}


def _start(start: TimedStart) -> Json:
    """One timed start with what proves it; the time line is that of the median start alone."""
    plain = start.model_dump(mode="json", include={"role", "repeat", "cache_keys", "cache_problem"})
    times = start.times.model_dump(mode="json", include={"total_s", "artifacts"})
    return {**plain, **times, "outputs": None if start.outputs is None else _comparison(start.outputs)}


def _residual(comparisons: Sequence[Residual]) -> Json | None:
    if not comparisons:
        return None
    shown = min(comparisons, key=_telling)
    keys = ("subject", "against", "sites", "ranks", "bitwise_equal", "worst_score", "first_divergence")
    return {
        **{key: value for key, value in shown.model_dump(mode="json").items() if key in keys},
        "comparisons": [comparison.model_dump(mode="json") for comparison in comparisons],
    }


def _telling(item: Residual) -> tuple[bool, bool, bool]:
    """The cell's own engine comes first, then what is wrong, then the replicated arm: there bit equality is owed."""
    return item.subject is not Role.PROBE, item.first_divergence is None, item.against is not Role.REPLICATED


def _outputs(comparisons: Sequence[OutputComparison]) -> Json | None:
    if not comparisons:
        return None
    # The replicated arm has the same ranks and kernels, so a difference from it says more than one from TP=1.
    shown = min(comparisons, key=_remoteness)
    return {**_comparison(shown), "comparisons": [_comparison(comparison) for comparison in comparisons]}


def _remoteness(comparison: OutputComparison) -> tuple[bool, bool]:
    return comparison.subject is not Role.PROBE, comparison.against is not Role.REPLICATED


def _comparison(comparison: OutputComparison) -> Json:
    plain = comparison.model_dump(mode="json")
    return {"class": plain.pop("klass"), **plain}


def _environment(cell: CellRecord, evidence: Evidence | None, sweep: SweepRecord) -> Json:
    patches = cell.patches if evidence is None else evidence.patches
    found = _where(cell, evidence, sweep)
    known = dict.fromkeys(Environment.model_fields) if found is None else found.model_dump(mode="json")
    name = cell.requested.get("environment", DEFAULT)
    return {"name": name, **known, "patches": _patches(patches)}


def _where(cell: CellRecord, evidence: Evidence | None, sweep: SweepRecord) -> Environment | None:
    if evidence is not None and evidence.environment is not None:
        return evidence.environment
    if cell.environment is not None:
        return cell.environment
    audited = cell.effective is not None or bool(cell.problems)
    return sweep.environment if audited and cell.requested.get("environment", DEFAULT) == DEFAULT else None


def _patches(patches: Mapping[Patch, PatchState]) -> Json:
    return {str(patch): str(state) for patch, state in patches.items()}


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
