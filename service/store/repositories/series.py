"""Series as pages and the API list them, and what became of their cells. See ``outcomes`` for what runs add."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from service.domain.verdict import Verdict
from service.store.models import CellRow
from service.store.records import UnknownRecord
from service.store.series_models import OutcomeRow, SeriesRow
from service.store.series_records import (
    OutcomeRecord,
    SeriesRecord,
)


def list_series(
    session: Session,
    limit: int,
    after: str | None = None,
    text: str | None = None,
    pinned: bool | None = None,
    ok: bool | None = None,
) -> list[SeriesRecord]:
    """By name, then id; with ``after`` only those behind the series of that id.

    ``text``: a part of the name, whatever the case. ``ok``: what the newest outcome was.

    Raises:
        UnknownRecord: there is no series ``after``.
    """
    query = select(SeriesRow).order_by(SeriesRow.name, SeriesRow.id).limit(limit)
    if after is not None:
        last = series_row(session, after)
        behind = or_(SeriesRow.name > last.name, and_(SeriesRow.name == last.name, SeriesRow.id > last.id))
        query = query.where(behind)
    if text:
        query = query.where(SeriesRow.name.icontains(text, autoescape=True))
    if pinned is not None:
        query = query.where(SeriesRow.pinned.is_(pinned))
    if ok is not None:
        query = query.where(SeriesRow.last_ok.is_(ok))
    return [series_record(row) for row in session.scalars(query)]


def get_series(session: Session, series_id: str) -> SeriesRecord:
    return series_record(series_row(session, series_id))


def names_of(session: Session, series_ids: Collection[str]) -> dict[str, str]:
    """Names of these series, by id."""
    query = select(SeriesRow.id, SeriesRow.name).where(SeriesRow.id.in_(series_ids))
    return {row.id: row.name for row in session.execute(query)}


def series_of_cell(session: Session, sweep_id: str, cell_id: str) -> str | None:
    """The series that a cell belongs to; that of the cell whose result it shares. ``None``: it has no outcome yet."""
    shared = select(CellRow.duplicate_of).where(CellRow.sweep_id == sweep_id, CellRow.id == cell_id)
    of = session.scalar(shared) or cell_id
    query = select(OutcomeRow.series_id).where(OutcomeRow.sweep_id == sweep_id, OutcomeRow.cell_id == of)
    return session.scalar(query)


def outcomes_of(session: Session, series_id: str, limit: int, before: datetime | None = None) -> list[OutcomeRecord]:
    """What became of the cells of a series, newest first: failures too."""
    query = select(OutcomeRow).where(OutcomeRow.series_id == series_id)
    if before is not None:
        query = query.where(OutcomeRow.at < before)
    return [outcome_record(row) for row in session.scalars(query.order_by(OutcomeRow.at.desc()).limit(limit))]


def series_row(session: Session, series_id: str) -> SeriesRow:
    row = session.get(SeriesRow, series_id)
    if row is None:
        raise UnknownRecord("series", series_id)
    return row


def series_record(row: SeriesRow) -> SeriesRecord:
    return SeriesRecord(
        id=row.id,
        name=row.name,
        settings=row.settings,
        environment=row.environment,
        device=row.device,
        devices=row.devices,
        cores=row.cores,
        pinned=row.pinned,
        created_at=row.created_at,
        last_at=row.last_at,
        last_verdict=Verdict(row.last_verdict),
        last_ok=row.last_ok,
    )


def outcome_record(row: OutcomeRow) -> OutcomeRecord:
    return OutcomeRecord(
        id=row.id,
        series_id=row.series_id,
        sweep_id=row.sweep_id,
        cell_id=row.cell_id,
        run_id=row.run_id,
        at=row.at,
        verdict=Verdict(row.verdict),
        ok=row.ok,
        versions=row.versions,
    )
