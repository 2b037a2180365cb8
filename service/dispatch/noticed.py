"""What people hear of a cell that has ended: how its outcome changed, and what became of its figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy.orm import Session

from service.dispatch.judging import words
from service.domain.case import Judgement
from service.domain.figures import Figure
from service.domain.notices import NoticeKind, change_words, shortened, versions_words
from service.domain.regression import Judged, Turn
from service.domain.verdict import Verdict
from service.store import repositories
from service.store.series_records import NewNotice, NewOutcome, OutcomeRecord


@dataclass(frozen=True)
class Found:
    """A figure with what the rules say of it now. ``since``: the outcome with which it began, if anything did."""

    figure: Figure
    judged: Judged
    since: OutcomeRecord | None
    before: OutcomeRecord | None


def of_outcome(
    session: Session, name: str, judgement: Judgement, outcome: NewOutcome, before: OutcomeRecord | None
) -> Iterator[NewNotice]:
    """The cell of that name began to fail, or to fail otherwise; or it is as expected again."""
    failed_before = before is not None and not before.ok and before.verdict is not Verdict.REGRESSION
    fails = not judgement.ok
    if fails and (before is None or not failed_before or before.verdict is not judgement.verdict):
        kind = NoticeKind.HANG if judgement.verdict is Verdict.TIMED_OUT else NoticeKind.NEW_FAILURE
        reason = words(judgement.reasons[0]) if judgement.reasons else str(judgement.verdict)
    elif failed_before and not fails and before is not None:
        kind, reason = NoticeKind.RECOVERED, f"{judgement.verdict} where it was {before.verdict}"
    else:
        return
    good = repositories.outcomes.good_until(session, outcome.series_id, outcome.at)
    compared = before if kind is NoticeKind.RECOVERED else good
    yield NewNotice(
        at=outcome.at,
        kind=kind,
        series_id=outcome.series_id,
        figure=None,
        sweep_id=outcome.sweep_id,
        cell_id=outcome.cell_id,
        what=shortened(f"{name}: {reason}"),
        since_sweep_id=outcome.sweep_id,
        versions_before=compared.versions if compared else {},
        versions_after=outcome.versions,
    )


_KINDS = {
    Turn.SUSPECTED: NoticeKind.SUSPECTED,
    Turn.REGRESSION: NoticeKind.REGRESSION,
    Turn.IMPROVEMENT: NoticeKind.IMPROVEMENT,
    Turn.RECOVERED: NoticeKind.RECOVERED,
}


def of_figures(found: list[Found], outcome: NewOutcome, name: str) -> Iterator[NewNotice]:
    """What became of the figures of the cell of that name."""
    for item in found:
        judged = item.judged
        if judged.turn is None or judged.baseline is None:
            continue
        before, after = judged.baseline.value, judged.level or judged.night.value
        versions_before = item.before.versions if item.before else {}
        versions_after = item.since.versions if item.since else outcome.versions
        changed = f", {versions_words(versions_before, versions_after)}" if item.since else ""
        yield NewNotice(
            at=outcome.at,
            kind=_KINDS[judged.turn],
            series_id=outcome.series_id,
            figure=item.figure.name,
            sweep_id=outcome.sweep_id,
            cell_id=outcome.cell_id,
            what=f"{name}: {change_words(item.figure, before, after)}{changed}",
            before=before,
            after=after,
            ratio=after / before,
            since_sweep_id=item.since.sweep_id if item.since else outcome.sweep_id,
            versions_before=versions_before,
            versions_after=versions_after,
        )
