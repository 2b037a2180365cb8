"""What runs add to series: outcomes with their points, and notices of what came of them."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from service.domain.measured import Measured
from service.store.repositories.series import outcome_record
from service.store.series_models import NoticeRow, OutcomeRow, PointRow, SeriesRow
from service.store.series_records import NewNotice, NewOutcome, NewSeries, OutcomeRecord


def add_outcome(session: Session, series: NewSeries, outcome: NewOutcome) -> None:
    """Store what became of a cell, and its series where it is new. The outcome of an earlier run of it is replaced."""
    _keep_series(session, series, outcome)
    session.flush()
    row = session.scalars(
        select(OutcomeRow).where(OutcomeRow.sweep_id == outcome.sweep_id, OutcomeRow.cell_id == outcome.cell_id)
    ).one_or_none()
    if row is None:
        row = OutcomeRow(sweep_id=outcome.sweep_id, cell_id=outcome.cell_id)
        session.add(row)
    else:
        session.execute(delete(PointRow).where(PointRow.outcome_id == row.id))
    row.series_id, row.run_id, row.at = outcome.series_id, outcome.run_id, outcome.at
    row.verdict, row.ok, row.versions = outcome.verdict, outcome.ok, dict(outcome.versions)
    session.flush()
    session.add_all(_point(row.id, outcome, point) for point in outcome.points)
    session.flush()


def change_outcome(session: Session, outcome: NewOutcome) -> None:
    """Its verdict, after what its points said was added to it."""
    row = session.scalars(
        select(OutcomeRow).where(OutcomeRow.sweep_id == outcome.sweep_id, OutcomeRow.cell_id == outcome.cell_id)
    ).one()
    row.verdict, row.ok = outcome.verdict, outcome.ok
    series = session.get_one(SeriesRow, outcome.series_id)
    series.last_verdict, series.last_ok = outcome.verdict, outcome.ok


def outcome_before(session: Session, outcome: NewOutcome) -> OutcomeRecord | None:
    """The newest outcome of the series that is not this cell's own."""
    query = select(OutcomeRow).where(
        OutcomeRow.series_id == outcome.series_id,
        (OutcomeRow.sweep_id != outcome.sweep_id) | (OutcomeRow.cell_id != outcome.cell_id),
    )
    row = session.scalars(query.order_by(OutcomeRow.at.desc(), OutcomeRow.id.desc()).limit(1)).first()
    return None if row is None else outcome_record(row)


def outcome_of_point(session: Session, point_id: int) -> OutcomeRecord:
    query = select(OutcomeRow).join(PointRow, PointRow.outcome_id == OutcomeRow.id).where(PointRow.id == point_id)
    return outcome_record(session.scalars(query).one())


def good_until(session: Session, series_id: str, before: datetime) -> OutcomeRecord | None:
    """The newest outcome before this time that was as expected."""
    query = select(OutcomeRow).where(OutcomeRow.series_id == series_id, OutcomeRow.at < before, OutcomeRow.ok.is_(True))
    row = session.scalars(query.order_by(OutcomeRow.at.desc()).limit(1)).first()
    return None if row is None else outcome_record(row)


def add_notice(session: Session, notice: NewNotice) -> None:
    session.add(
        NoticeRow(
            at=notice.at,
            kind=notice.kind,
            series_id=notice.series_id,
            figure=notice.figure,
            sweep_id=notice.sweep_id,
            cell_id=notice.cell_id,
            what=notice.what,
            before=notice.before,
            after=notice.after,
            ratio=notice.ratio,
            since_sweep_id=notice.since_sweep_id,
            versions_before=dict(notice.versions_before),
            versions_after=dict(notice.versions_after),
        )
    )


def _keep_series(session: Session, series: NewSeries, outcome: NewOutcome) -> None:
    row = session.get(SeriesRow, series.id)
    if row is None:
        row = SeriesRow(
            id=series.id,
            settings=series.settings,
            environment=series.environment,
            device=series.device,
            devices=series.devices,
            cores=series.cores,
            pinned=False,
            created_at=outcome.at,
        )
        session.add(row)
    row.name = series.name
    row.last_at, row.last_verdict, row.last_ok = outcome.at, outcome.verdict, outcome.ok


def _point(outcome_id: int, outcome: NewOutcome, point: Measured) -> PointRow:
    return PointRow(
        outcome_id=outcome_id,
        series_id=outcome.series_id,
        figure=point.figure,
        at=outcome.at.timestamp(),
        value=point.value,
        lowest=point.lowest,
        highest=point.highest,
        repeats=point.repeats,
    )
