"""What a store says of sweeps under fire: is a result lost or doubled?

All is counted from the database, after the last sweep has ended. A *result* is a run that ended with evidence.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.domain.lifecycle import State
from service.store import repositories
from service.store.models import EventRow, RunRow
from service.store.records import CellRecord, RunRecord, SweepState


@dataclass
class Counted:
    """``cells`` by their state and ``verdicts``; ``problems``: every contradiction, in words."""

    cells: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    attempts: Counter[int] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


def count(session: Session, submitted: dict[str, int]) -> Counted:
    """``submitted``: how many cells each accepted sweep was to have, by its id."""
    found = Counted()
    for sweep_id, wanted in submitted.items():
        cells = repositories.cells_of(session, sweep_id)
        if repositories.get_sweep(session, sweep_id).state is not SweepState.ENDED:
            found.problems.append(f"sweep {sweep_id} has not ended")
        if len(cells) != wanted:
            found.problems.append(f"sweep {sweep_id} was to have {wanted} cells and has {len(cells)}")
        runs = _runs(session, sweep_id)
        finished = _arms_finished(session, sweep_id)
        for cell in cells:
            found.cells[cell.state] += 1
            found.verdicts[str(cell.verdict)] += 1
            found.attempts[len(runs[cell.id])] += 1
            found.problems += [f"cell {cell.name} of sweep {sweep_id}: {text}" for text in _of(cell, runs[cell.id])]
            found.problems += [text for run in runs[cell.id] for text in _of_events(run, finished[run.id])]
    return found


def _of(cell: CellRecord, runs: list[RunRecord]) -> Iterator[str]:
    results = [run for run in runs if run.evidence is not None]
    if not cell.state.ended or cell.verdict is None:
        yield f"it is {cell.state} with the verdict {cell.verdict}: it never ended"
    if cell.state in (State.FINISHED, State.FAILED) and not results:
        yield f"it is {cell.state} as {cell.verdict}, and no run of it has a result"
    if cell.state is State.CRASHED and results:
        yield f"a result is lost: run {results[0].id} has evidence, and the cell is {cell.state}"
    if len(results) > 1:
        yield f"a result is doubled: {', '.join(run.id for run in results)}"
    if [run.attempt for run in runs] != list(range(1, len(runs) + 1)):
        yield f"its attempts are numbered {[run.attempt for run in runs]}"
    for run in runs:
        if not run.state.ended:
            yield f"run {run.id} is {run.state}: it never ended"
    for before, after in pairwise(runs):
        if before.ended_at is not None and after.started_at is not None and after.started_at < before.ended_at:
            yield f"run {after.id} began before run {before.id} had ended"


def _of_events(run: RunRecord, finished: Counter[str]) -> Iterator[str]:
    """Of a run with evidence every arm that ran was told of, once."""
    if run.evidence is None:
        return
    own = {arm.role for arm in run.spec.arms}
    ran = Counter(str(arm.role) for arm in run.evidence.arms if arm.role in own)
    if ran != finished:
        yield f"run {run.id}: its evidence has the arms {dict(ran)}, its events {dict(finished)}"


def _runs(session: Session, sweep_id: str) -> dict[str, list[RunRecord]]:
    """By cell, in the order of their attempts."""
    query = select(RunRow.id).where(RunRow.sweep_id == sweep_id).order_by(RunRow.attempt)
    found: dict[str, list[RunRecord]] = defaultdict(list)
    for run_id in session.scalars(query).all():
        run = repositories.get_run(session, run_id)
        found[run.cell_id].append(run)
    return found


def _arms_finished(session: Session, sweep_id: str) -> dict[str | None, Counter[str]]:
    """Arms that were told to have ended, by run."""
    query = select(EventRow.run_id, EventRow.arm).where(EventRow.sweep_id == sweep_id, EventRow.kind == "arm-finished")
    found: dict[str | None, Counter[str]] = defaultdict(Counter)
    for run_id, arm in session.execute(query):
        found[run_id][str(arm)] += 1
    return found
