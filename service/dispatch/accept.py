"""Store an accepted sweep as a whole: its cells as they were resolved, its jobs, and verdicts that need no run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from sqlalchemy.orm import Session

from service.dispatch.courses import store_judgement
from service.dispatch.history import with_reasons
from service.dispatch.judging import Found, judged
from service.dispatch.plan import Plan, PlannedCell
from service.dispatch.unresolved import followed_unresolved
from service.dispatch.work import AUDIT_ALONE, Places, jobs
from service.domain.judge import conclude
from service.domain.lifecycle import State
from service.domain.verdict import Verdict
from service.settings import Settings
from service.store import repositories
from service.store.queue_records import QueueRecord
from service.store.records import NewSweep, ResolvedCell


@dataclass(frozen=True)
class Terms:
    """How a sweep is to be dispatched: ``priority``, the higher the sooner; ``max_parallel`` runs of it at once."""

    queue: str
    priority: int = 0
    max_parallel: int | None = None
    key_id: str | None = None


def accept(session: Session, sweep_id: str, owner: str, plan: Plan, terms: Terms, settings: Settings) -> None:
    """Store the sweep, so that any controller can go on with it."""
    matrix, places = plan.matrix, Places.of(plan)
    sweep = NewSweep(sweep_id, matrix.name, datetime.now(UTC), owner, matrix.source, asdict(matrix.timeouts))
    repositories.create_sweep(session, sweep, matrix.cells)
    repositories.set_sweep_environment(session, sweep_id, plan.environment)
    repositories.queue_cells(session, sweep_id, [_resolved(item) for item in plan.cells])
    queue = QueueRecord(sweep_id, terms.queue, terms.priority, terms.max_parallel, terms.key_id, places.plain())
    repositories.queue_sweep(session, queue, jobs(sweep_id, plan, places, settings))
    for item in plan.cells:
        _settle(session, sweep_id, item)
    if not repositories.has_open_cells(session, sweep_id):
        repositories.end_sweep(session, sweep_id)


def _resolved(item: PlannedCell) -> ResolvedCell:
    original = item.duplicate_of.id if item.duplicate_of else None
    return ResolvedCell(item.audited, item.fingerprint, item.environment, original, item.notes)


def _settle(session: Session, sweep_id: str, item: PlannedCell) -> None:
    """Conclude a cell that nothing has to be run for."""
    why = item.cannot_run
    if why is not None:
        # An environment that could not be had is no engine's fault.
        state = State.CRASHED if why.finding is Verdict.CRASHED else State.FINISHED
        cell = repositories.get_cell(session, sweep_id, item.cell.id)
        found = conclude([why], item.cell.expect)
        reasons = followed_unresolved(session, cell, item.environment, found)
        store_judgement(session, cell, with_reasons(found, reasons, cell), state)
    elif item.cell.checks == AUDIT_ALONE:
        of = item.duplicate_of.name if item.duplicate_of else None
        cell = repositories.get_cell(session, sweep_id, item.cell.id)
        store_judgement(session, cell, judged(cell, Found(None), of), State.FINISHED)


def describe_environments(plan: Plan, sweep_id: str, settings: Settings) -> None:
    """What the environments of the sweep are made of, beside its other artifacts."""
    folder = settings.artifacts_dir / sweep_id / "environments"
    for name, engine in plan.engines.items():
        if engine.description is not None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.json").write_text(json.dumps(engine.description, indent=1))
