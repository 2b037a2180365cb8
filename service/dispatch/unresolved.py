"""Follow a cell that could not be resolved: an engine environment that lacks a setting, or cannot be had.

Nothing ran, so there are no figures. But a cell that was as expected until another version came is what somebody wants
to hear of.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy.orm import Session

from service.dispatch.history import safely, versions_of
from service.dispatch.noticed import of_outcome
from service.domain.case import Judgement, Reason
from service.store import repositories
from service.store.records import CellRecord
from service.store.series_records import NewOutcome
from workers.protocol import Environment


def followed_unresolved(
    session: Session,
    cell: CellRecord,
    environment: Environment | None,
    judgement: Judgement,
    now: datetime | None = None,
) -> tuple[Reason, ...]:
    """Add what became of ``cell`` to the series that it had so far; reasons that it has besides, if any.

    Where it never had one, there is nothing to follow. ``environment``: ``None`` where that could not be had.
    """
    return safely(session, cell, lambda: _follow_unresolved(session, cell, environment, judgement, now))


def _follow_unresolved(
    session: Session, cell: CellRecord, environment: Environment | None, judgement: Judgement, now: datetime | None
) -> tuple[Reason, ...]:
    series = repositories.earlier.series_so_far(session, cell, environment)
    if series is None:
        return ()
    outcome = NewOutcome(
        series_id=series.id,
        sweep_id=cell.sweep_id,
        cell_id=cell.id,
        run_id=None,
        at=now or datetime.now(UTC),
        verdict=judgement.verdict,
        ok=judgement.ok,
        versions={} if environment is None else versions_of(environment),
    )
    before = repositories.outcomes.outcome_before(session, outcome)
    repositories.outcomes.add_outcome(session, series, outcome)
    if not repositories.series_said.is_muted(session, series.id, outcome.at):
        for notice in of_outcome(session, cell.name, judgement, outcome, before):
            repositories.outcomes.add_notice(session, notice)
    return ()
