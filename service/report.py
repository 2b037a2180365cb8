"""The report of a sweep, ``shardproof.report/1``: what is stored, in the shape that others read.

Keys are stable: they are added, never renamed. What was not looked at is ``None``, never zero. Every value is plain
JSON; a number that JSON does not have (a residual score that is not finite) is its name in a string.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from service.domain.secrecy import masked
from service.report_evidence import reported
from service.store import repositories
from service.store.plain import finite
from service.store.records import CellRecord, RunRecord, SweepRecord
from workers.protocol import DEFAULT, Change, Environment, Patch, PatchState

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


def _report(sweep: SweepRecord, cells: Sequence[CellRecord], runs: Sequence[RunRecord], matrix: str) -> Json:
    """Numbers that JSON does not have are numbers still."""
    run_of = {run.cell_id: run for run in runs}
    return {
        "schema": SCHEMA,
        "sweep": sweep_of(sweep),
        "summary": summary_of(cells),
        "cells": [cell_report(cell, run_of.get(cell.duplicate_of or cell.id), sweep, matrix) for cell in cells],
    }


def sweep_of(sweep: SweepRecord) -> Json:
    """What a report says of the sweep itself."""
    return {
        "id": sweep.id,
        "name": sweep.name,
        "created_at": _time(sweep.created_at),
        "ended_at": _time(sweep.ended_at),
        "state": str(sweep.state),
        "matrix": masked(sweep.matrix),
        "artifacts_removed_at": _time(sweep.artifacts_removed_at),
    }


def summary_of(cells: Sequence[CellRecord]) -> Json:
    """What it says of all cells together."""
    found = Counter(str(cell.verdict) for cell in cells if cell.verdict is not None)
    return {
        "cells": len(cells),
        "ok": sum(cell.ok is True for cell in cells),
        "unexpected": sum(cell.ok is False for cell in cells),
        "by_verdict": dict(sorted(found.items())),
    }


def cell_report(cell: CellRecord, run: RunRecord | None, sweep: SweepRecord, matrix: str) -> Json:
    """What it says of a cell whose newest attempt is ``run``. Numbers that JSON does not have are numbers still."""
    evidence = None if run is None else run.evidence
    found, patches = (None, cell.patches) if evidence is None else (evidence.environment, evidence.patches)
    return {
        **head(cell, None if run is None else run.failure, sweep),
        **reported(evidence, kept=sweep.artifacts_removed_at is None),
        **tail(cell, found, patches, sweep, matrix),
    }


def head(cell: CellRecord, failure: str | None, sweep: SweepRecord) -> Json:
    """Of a cell, what stands before what its evidence gives."""
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
        "failure": failure,
    }


def tail(
    cell: CellRecord, found: Environment | None, patches: Mapping[Patch, PatchState], sweep: SweepRecord, matrix: str
) -> Json:
    """And what stands behind it. ``found``: the environment that the evidence names."""
    known = found or _where(cell, sweep)
    plain = dict.fromkeys(Environment.model_fields) if known is None else known.model_dump(mode="json")
    environment = {"name": cell.requested.get("environment", DEFAULT), **plain, "patches": _patches(patches)}
    return {
        "environment": environment,
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


def _where(cell: CellRecord, sweep: SweepRecord) -> Environment | None:
    """Where the cell was audited."""
    if cell.environment is not None:
        return cell.environment
    audited = cell.effective is not None or bool(cell.problems)
    return sweep.environment if audited and cell.requested.get("environment", DEFAULT) == DEFAULT else None


def _patches(patches: Mapping[Patch, PatchState]) -> Json:
    return {str(patch): str(state) for patch, state in patches.items()}


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
