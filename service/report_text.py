"""The report as JSON text. What the evidence of a run gives for it is most of it: it is made once, when the run ends.

It is kept beside the run with the format it has. A run that has none in the present format, because an earlier version
stored it, is reported from its evidence.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy.orm import Session

from service.report import SCHEMA, cell_report, head, summary_of, sweep_of, tail
from service.report_evidence import reported
from service.store import repositories
from service.store.plain import dump_json, finite
from service.store.records import CellRecord, RunPart, SweepRecord
from workers.protocol import Environment, Evidence, Patch, PatchState

FORMAT = "2"
"""Goes up whenever ``reported`` makes something else of the same evidence; a test sees to it."""

MATRIX = "MATRIX"

_FILES = ('"stacks": "', '"traces": {')
"""What names files in the text. Inside of a string the quotes would have a backslash."""


def keep_part(session: Session, run_id: str, evidence: Evidence) -> None:
    """Store what a report says by ``evidence`` beside its run."""
    text = dump_json(reported(evidence, kept=True))
    environment = None if evidence.environment is None else evidence.environment.model_dump(mode="json")
    patches = {str(patch): str(state) for patch, state in evidence.patches.items()}
    repositories.keep_part(session, run_id, FORMAT, environment, patches, text)


def stored_report_text(session: Session, sweep_id: str) -> str:
    """``service.report.stored_report`` as JSON text.

    Raises:
        UnknownRecord: if there is no such sweep.
    """
    sweep = repositories.get_sweep(session, sweep_id)
    cells = repositories.cells_of(session, sweep_id)
    parts = {part.cell_id: part for part in repositories.parts_of(session, sweep_id, FORMAT)}
    texts = [_cell(session, cell, parts.get(cell.duplicate_of or cell.id), sweep) for cell in cells]
    first = _dumped({"schema": SCHEMA, "sweep": sweep_of(sweep), "summary": summary_of(cells)})
    return f'{first[:-1]}, "cells": [{", ".join(texts)}]}}'


def kept_report(session: Session, sweep_id: str) -> dict[str, Any]:
    """``service.report.stored_report``, of what was kept beside the runs: a tenth of the time where there are many.

    Raises:
        UnknownRecord: if there is no such sweep.
    """
    found: dict[str, Any] = json.loads(stored_report_text(session, sweep_id))
    return found


def _cell(session: Session, cell: CellRecord, part: RunPart | None, sweep: SweepRecord) -> str:
    if part is None or part.text is None or (sweep.artifacts_removed_at is not None and _names_files(part.text)):
        run = None if part is None else repositories.get_run(session, part.run_id)
        return _dumped(cell_report(cell, run, sweep, MATRIX))
    found = None if part.environment is None else Environment.model_validate(part.environment)
    patches = {Patch(patch): PatchState(state) for patch, state in (part.patches or {}).items()}
    first = _dumped(head(cell, part.failure, sweep))
    last = _dumped(tail(cell, found, patches, sweep, MATRIX))
    return f"{first[:-1]}, {part.text[1:-1]}, {last[1:]}"


def _names_files(text: str) -> bool:
    return any(name in text for name in _FILES)


def _dumped(plain: dict[str, Any]) -> str:
    try:
        return json.dumps(plain, allow_nan=False)
    except ValueError:
        return json.dumps(finite(plain), allow_nan=False)
