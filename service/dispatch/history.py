"""Follow each configuration over time: what a run found goes to its series, and what the series says to its verdict.

It happens in the unit of work that concludes the cell. Nothing here makes a cell fail: a fault of this code is logged
and noted among the cell's reasons.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from service.dispatch.noticed import Found, of_figures, of_outcome
from service.domain.case import Judgement, Reason
from service.domain.figures import figure_of
from service.domain.judge import conclude
from service.domain.measured import Measured, begun_otherwise, measured
from service.domain.notices import basis_words, change_words, since_words, versions_words
from service.domain.regression import Condition, Rules
from service.domain.series import Identity, identity
from service.domain.verdict import Verdict
from service.settings import Settings
from service.store import repositories
from service.store.records import CellRecord
from service.store.repositories.standings import rejudge
from service.store.series_records import NewOutcome, NewSeries
from service.store.trouble import trouble_of
from workers.protocol import Check, Environment, Evidence

logger = logging.getLogger(__name__)

_NO_OUTCOME = (Verdict.CANCELLED, Verdict.SKIPPED)
"""Of a cell that did not run there is nothing to follow."""

_VERSIONS = ("vllm", "torch", "ray", "python", "driver")

_NOT_TIMED = (Verdict.CRASHED, Verdict.TIMED_OUT, Verdict.INVALID_MEASUREMENT, Verdict.UNSUPPORTED)
"""Also where they are expected, there are no times that say anything."""


@dataclass(frozen=True)
class Ran:
    """A cell that has ended. ``environment``: where it was to run. ``evidence``: ``None`` where there is none."""

    cell: CellRecord
    run_id: str | None
    environment: Environment
    evidence: Evidence | None
    judgement: Judgement


def followed(session: Session, ran: Ran, settings: Settings, now: datetime | None = None) -> tuple[Reason, ...]:
    """Add what ``ran`` found to its series; what that says of it, as further reasons for its verdict."""
    return safely(session, ran.cell, lambda: _follow(session, ran, settings, now or datetime.now(UTC)))


def safely(session: Session, cell: CellRecord, follow: Callable[[], tuple[Reason, ...]]) -> tuple[Reason, ...]:
    """What ``follow`` returns; where it fails nothing of it is stored, and the reason says so."""
    try:
        with session.begin_nested():
            return follow()
    except Exception as error:
        if isinstance(error, DBAPIError) and trouble_of(error) is not None:
            raise  # The whole unit of work is tried again.
        logger.exception("series of cell %s of sweep %s", cell.id, cell.sweep_id)
        # Its text may be a statement with all its values.
        why = f"{type(error).__name__}, which the controller's log has in full"
        return (Reason(None, f"not followed over time, by a fault of Shardproof's own: {why}"),)


def with_reasons(judgement: Judgement, reasons: tuple[Reason, ...], cell: CellRecord) -> Judgement:
    return conclude([*judgement.reasons, *reasons], cell.expect) if reasons else judgement


def _follow(session: Session, ran: Ran, settings: Settings, now: datetime) -> tuple[Reason, ...]:
    cell, judgement = ran.cell, ran.judgement
    if cell.shape is None or cell.effective is None or judgement.verdict in _NO_OUTCOME:
        return ()
    machines = _machines(ran.evidence)
    key = identity(cell.requested, cell.effective, cell.shape, ran.environment, settings.preload, machines)
    outcome = NewOutcome(
        series_id=key.id,
        sweep_id=cell.sweep_id,
        cell_id=cell.id,
        run_id=ran.run_id,
        at=now,
        verdict=judgement.verdict,
        ok=judgement.ok,
        versions=_versions(ran),
        points=_points(ran, settings),
    )
    before = repositories.outcomes.outcome_before(session, outcome)
    repositories.outcomes.add_outcome(session, _series(key, cell), outcome)
    found = [*_judged(session, outcome, settings.regression_rules)]
    muted = repositories.series_said.is_muted(session, key.id, now)
    reasons = (*_not_followed(ran, settings), *(reason for item in found for reason in _reasons(item, outcome, muted)))
    final = with_reasons(judgement, reasons, cell)
    if final.verdict is not judgement.verdict:
        outcome = replace(outcome, verdict=final.verdict, ok=final.ok)
        repositories.outcomes.change_outcome(session, outcome)
    if not muted:
        for notice in (
            *of_outcome(session, cell.name, judgement, outcome, before),
            *of_figures(found, outcome, cell.name),
        ):
            repositories.outcomes.add_notice(session, notice)
    return reasons


# --- what is stored --------------------------------------------------------------------------------------------------


def _series(key: Identity, cell: CellRecord) -> NewSeries:
    return NewSeries(key.id, cell.name, key.settings, key.environment, key.device, key.devices, key.cores)


def _machines(evidence: Evidence | None) -> int:
    arms = () if evidence is None else evidence.arms
    return max((len(arm.machines) for arm in arms), default=0) or 1


def _versions(ran: Ran) -> dict[str, str]:
    found = ran.evidence.environment if ran.evidence is not None else None
    return versions_of(found or ran.environment)


def versions_of(environment: Environment) -> dict[str, str]:
    """Those of it that are known."""
    named = {name: getattr(environment, name) for name in _VERSIONS}
    return {name: version for name, version in named.items() if version is not None}


def _points(ran: Ran, settings: Settings) -> tuple[Measured, ...]:
    timed = Check.COMPILE in ran.cell.checks and ran.judgement.ok and ran.judgement.verdict not in _NOT_TIMED
    return measured(ran.evidence, settings.preload) if timed and ran.evidence is not None else ()


def _not_followed(ran: Ran, settings: Settings) -> Iterator[Reason]:
    if (
        ran.evidence is not None
        and Check.COMPILE in ran.cell.checks
        and begun_otherwise(ran.evidence, settings.preload)
    ):
        how = "be forked from a process that had imported vLLM" if settings.preload else "import vLLM by themselves"
        yield Reason(None, f"its engines were to {how} and were not: these times are not followed over time")


# --- what the rules say ----------------------------------------------------------------------------------------------


def _judged(session: Session, outcome: NewOutcome, rules: Rules) -> Iterator[Found]:
    for point in outcome.points:
        figure = figure_of(point.figure)
        judged = rejudge(session, outcome.series_id, point.figure, rules) if figure.judged else None
        if judged is None:
            continue
        since = before = None
        if judged.since is not None:
            since = repositories.outcomes.outcome_of_point(session, judged.since.id)
            before = repositories.outcomes.good_until(session, outcome.series_id, since.at)
        yield Found(figure, judged, since, before)


def _reasons(found: Found, outcome: NewOutcome, muted: bool) -> Iterator[Reason]:
    judged = found.judged
    if judged.since is None or judged.baseline is None or found.since is None:
        return
    change = change_words(found.figure, judged.baseline.value, judged.night.value)
    if judged.condition is Condition.SUSPECTED:
        yield Reason(None, f"{change}: suspected, the next sweep will tell ({basis_words(found.figure, judged)})")
    elif judged.condition is Condition.REGRESSION and judged.worse:
        since = since_words(found.since.sweep_id, judged.since.at)
        versions = versions_words(found.before.versions if found.before else {}, found.since.versions)
        text = f"{change}, {since}, {versions}; {basis_words(found.figure, judged)}"
        yield Reason(None, f"{text}; muted") if muted else Reason(Verdict.REGRESSION, text)
