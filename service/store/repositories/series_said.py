"""What people say of series: which to pin, what to accept as a baseline, what to mute."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from service.domain.figures import JUDGED
from service.domain.regression import DEFAULT_RULES, Rules
from service.store.repositories.series import series_row
from service.store.repositories.series_points import get_point
from service.store.repositories.standings import rejudge
from service.store.series_models import BaselineRow, MuteRow
from service.store.series_records import (
    BaselineRecord,
    ForeignPoint,
    MuteRecord,
    NotJudged,
    moment,
)


def set_pinned(session: Session, series_id: str, pinned: bool) -> None:
    """Pinned series stand on the overview."""
    series_row(session, series_id).pinned = pinned


def accept(
    session: Session,
    series_id: str,
    figure: str,
    point_id: int,
    reason: str,
    author: str,
    rules: Rules = DEFAULT_RULES,
    now: datetime | None = None,
) -> BaselineRecord:
    """From this point on the figure is as it should be: what follows is held against it.

    Raises:
        UnknownRecord: no such series, or no such point.
        NotJudged, ForeignPoint: it is no point of a figure that is judged.
    """
    series_row(session, series_id)
    if figure not in JUDGED:
        raise NotJudged(figure, ", ".join(JUDGED))
    point = get_point(session, series_id, point_id)
    if point.figure != figure:
        raise ForeignPoint(point_id, series_id, figure)
    row = BaselineRow(
        series_id=series_id,
        figure=figure,
        point_id=point_id,
        from_at=point.at.timestamp(),
        value=point.value,
        reason=reason,
        author=author,
        at=now or datetime.now(UTC),
    )
    session.add(row)
    session.flush()
    rejudge(session, series_id, figure, rules)
    return _baseline(row)


def accepted(session: Session, series_id: str) -> dict[str, BaselineRecord]:
    """The newest baseline that somebody accepted, of each figure that has one."""
    of_series = select(func.max(BaselineRow.id)).where(BaselineRow.series_id == series_id)
    newest = of_series.group_by(BaselineRow.figure)
    rows = session.scalars(select(BaselineRow).where(BaselineRow.id.in_(newest)))
    return {row.figure: _baseline(row) for row in rows}


def mute(
    session: Session, series_id: str, until: datetime, reason: str, author: str, now: datetime | None = None
) -> MuteRecord:
    """Tell nothing of the series until then. A time that is over ends what was muted before."""
    series_row(session, series_id)
    moment_now = now or datetime.now(UTC)
    for earlier in session.scalars(select(MuteRow).where(MuteRow.series_id == series_id, MuteRow.until > moment_now)):
        earlier.until = moment_now
    row = MuteRow(series_id=series_id, until=until, reason=reason, author=author, at=moment_now)
    session.add(row)
    session.flush()
    return _mute(row)


def is_muted(session: Session, series_id: str, now: datetime) -> bool:
    query = select(MuteRow.id).where(MuteRow.series_id == series_id, MuteRow.until > now).limit(1)
    return session.scalar(query) is not None


def mutes_of(session: Session, series_id: str) -> list[MuteRecord]:
    query = select(MuteRow).where(MuteRow.series_id == series_id).order_by(MuteRow.id.desc())
    return [_mute(row) for row in session.scalars(query)]


def _baseline(row: BaselineRow) -> BaselineRecord:
    return BaselineRecord(
        id=row.id,
        series_id=row.series_id,
        figure=row.figure,
        point_id=row.point_id,
        from_at=moment(row.from_at),
        value=row.value,
        reason=row.reason,
        author=row.author,
        at=row.at,
    )


def _mute(row: MuteRow) -> MuteRecord:
    return MuteRecord(
        id=row.id, series_id=row.series_id, until=row.until, reason=row.reason, author=row.author, at=row.at
    )
