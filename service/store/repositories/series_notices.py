"""Notices of series: what is told to people."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.domain.notices import NoticeKind
from service.store.series_models import NoticeRow
from service.store.series_records import (
    NoticeRecord,
)


def notices(
    session: Session,
    limit: int,
    before: int | None = None,
    kinds: Sequence[NoticeKind] | None = None,
    series_id: str | None = None,
    after: int | None = None,
    sweep_id: str | None = None,
) -> list[NoticeRecord]:
    """Newest first; with ``before`` only those older than that notice, with ``after`` only newer ones."""
    query = select(NoticeRow).order_by(NoticeRow.id.desc()).limit(limit)
    if before is not None:
        query = query.where(NoticeRow.id < before)
    if after is not None:
        query = query.where(NoticeRow.id > after)
    if kinds is not None:
        query = query.where(NoticeRow.kind.in_(kinds))
    if series_id is not None:
        query = query.where(NoticeRow.series_id == series_id)
    if sweep_id is not None:
        query = query.where(NoticeRow.sweep_id == sweep_id)
    return [_notice(row) for row in session.scalars(query)]


def _notice(row: NoticeRow) -> NoticeRecord:
    return NoticeRecord(
        id=row.id,
        at=row.at,
        kind=NoticeKind(row.kind),
        series_id=row.series_id,
        figure=row.figure,
        sweep_id=row.sweep_id,
        cell_id=row.cell_id,
        what=row.what,
        before=row.before,
        after=row.after,
        ratio=row.ratio,
        since_sweep_id=row.since_sweep_id,
        versions_before=row.versions_before,
        versions_after=row.versions_after,
    )
