"""How series stand: baseline, bounds and condition of each figure, and where its level changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from sqlalchemy.orm import Session

from service.domain.change_points import change_points
from service.domain.figures import JUDGED
from service.domain.regression import Condition, Night
from service.store.repositories.series import get_series
from service.store.repositories.series_said import accepted, mutes_of
from service.store.repositories.standings import nights_of, standing_record, standings_query
from service.store.series_models import StandingRow
from service.store.series_records import (
    BaselineRecord,
    ChangePoint,
    FigureState,
    SeriesState,
    StandingRecord,
    moment,
)

MOST_FOR_CHANGES = 1000
"""Change points are looked for in so many of the newest nights: the time that takes grows with their square."""


def state_of(session: Session, series_id: str, now: datetime | None = None) -> SeriesState:
    """Baseline, bounds and condition of each judged figure, where its level changed, and who has said what."""
    series = get_series(session, series_id)
    standings = {row.figure: row for row in standings_of(session, [series_id])}
    baselines = accepted(session, series_id)
    mutes = tuple(mutes_of(session, series_id))
    moment_now = now or datetime.now(UTC)
    return SeriesState(
        series=series,
        figures={
            figure: _state(session, standings[figure], baselines.get(figure))
            for figure in JUDGED
            if figure in standings
        },
        mutes=mutes,
        muted_until=max((mute.until for mute in mutes if mute.until > moment_now), default=None),
    )


def standings_of(session: Session, series_ids: Iterable[str]) -> list[StandingRecord]:
    """Of several series at once, by series and figure."""
    query = standings_query().where(StandingRow.series_id.in_(list(series_ids)))
    return [standing_record(row) for row in session.execute(query.order_by(StandingRow.series_id, StandingRow.figure))]


def attention(session: Session, limit: int) -> list[StandingRecord]:
    """Figures that are worse than their baseline, or may be; newest first."""
    worse = (Condition.REGRESSION, Condition.SUSPECTED)
    query = standings_query().where(StandingRow.state.in_(worse)).order_by(StandingRow.at.desc()).limit(limit)
    return [standing_record(row) for row in session.execute(query)]


def _state(session: Session, standing: StandingRecord, baseline: BaselineRecord | None) -> FigureState:
    nights = nights_of(session, standing.series_id, standing.figure, limit=MOST_FOR_CHANGES)
    return FigureState(
        standing=standing,
        accepted=baseline,
        changes=tuple(_changes(nights)),
    )


def _changes(nights: Sequence[Night]) -> Iterable[ChangePoint]:
    for found in change_points([night.value for night in nights]):
        night = nights[found.index]
        yield ChangePoint(night.id, moment(night.at), found.before, found.after)
