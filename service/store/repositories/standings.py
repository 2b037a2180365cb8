"""How the figures of series stand: made anew from their points whenever one comes or a baseline is accepted."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, Select, func, select, update
from sqlalchemy.orm import Session

from service.domain.figures import figure_of
from service.domain.regression import Condition, Judged, Night, Rules, replay
from service.store.series_models import BaselineRow, OutcomeRow, PointRow, StandingRow
from service.store.series_records import StandingRecord, moment

MOST_NIGHTS = 2000
"""Of one figure since its accepted baseline: more than five years. Older ones are not looked at."""


def rejudge(session: Session, series_id: str, figure: str, rules: Rules) -> Judged | None:
    """Judge all nights of a figure since its accepted baseline, and store how it stands with the newest.

    ``None`` where it has no point.
    """
    nights = nights_of(session, series_id, figure, since=_accepted_from(session, series_id, figure))
    if not nights:
        return None
    judged = replay(nights, rules, figure_of(figure).floor(rules))[-1]
    _store(session, series_id, figure, judged)
    session.flush()
    return judged


def nights_of(
    session: Session, series_id: str, figure: str, since: float | None = None, limit: int = MOST_NIGHTS
) -> list[Night]:
    """The newest nights of a figure, oldest first. Of several points of one sweep the newest counts."""
    query = (
        select(PointRow.id, PointRow.at, PointRow.value, OutcomeRow.sweep_id)
        .join(OutcomeRow, OutcomeRow.id == PointRow.outcome_id)
        .where(PointRow.series_id == series_id, PointRow.figure == figure)
        .order_by(PointRow.at.desc(), PointRow.id.desc())
        .limit(limit)
    )
    if since is not None:
        query = query.where(PointRow.at >= since)
    by_sweep: dict[str, Night] = {}
    for point_id, at, value, sweep_id in session.execute(query):
        if sweep_id not in by_sweep:
            by_sweep[sweep_id] = Night(point_id, at, value)
    return list(by_sweep.values())[::-1]


def _accepted_from(session: Session, series_id: str, figure: str) -> float | None:
    newest = select(func.max(BaselineRow.id)).where(BaselineRow.series_id == series_id, BaselineRow.figure == figure)
    return session.scalar(select(BaselineRow.from_at).where(BaselineRow.id == newest.scalar_subquery()))


def _store(session: Session, series_id: str, figure: str, judged: Judged) -> None:
    baseline = judged.baseline
    held = None if baseline is None else baseline.value
    session.merge(
        StandingRow(
            series_id=series_id,
            figure=figure,
            state=judged.condition,
            point_id=judged.night.id,
            at=judged.night.at,
            value=judged.night.value,
            baseline=held,
            lower=judged.lower,
            upper=judged.upper,
            noise=None if baseline is None else baseline.noise,
            ratio=judged.ratio,
            points=judged.points,
            missing=judged.missing,
            from_at=judged.first.at,
            since_point_id=None if judged.since is None else judged.since.id,
        )
    )
    session.execute(update(PointRow).where(PointRow.id == judged.night.id).values(baseline=held))


def standings_query() -> Select[*tuple[Any, ...]]:
    """Standings with what is known of the night since which they are so."""
    # Joined one by one: as one subquery SQLite would make a table of every point there is.
    columns = StandingRow.__table__.columns
    return (
        select(*columns, PointRow.at.label("since_at"), OutcomeRow.sweep_id.label("since_sweep_id"))
        .outerjoin(PointRow, PointRow.id == StandingRow.since_point_id)
        .outerjoin(OutcomeRow, OutcomeRow.id == PointRow.outcome_id)
    )


def standing_record(row: Row[*tuple[Any, ...]]) -> StandingRecord:
    found = row._asdict()
    times = {name: None if found[name] is None else moment(found[name]) for name in ("at", "from_at", "since_at")}
    return StandingRecord(**{**found, **times, "state": Condition(found["state"])})
