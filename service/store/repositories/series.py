"""Queries on series: what pages and the API read of them, and what people set. See ``outcomes`` for what runs add."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, Select, and_, or_, select, tuple_
from sqlalchemy.orm import Session

from service.domain.change_points import change_points
from service.domain.figures import FIGURES
from service.domain.notices import NoticeKind
from service.domain.regression import DEFAULT_RULES, Condition, Night, Rules
from service.domain.verdict import Verdict
from service.store.models import CellRow
from service.store.records import UnknownRecord
from service.store.repositories.standings import nights_of, rejudge, standing_record, standings_query
from service.store.series_models import BaselineRow, MuteRow, NoticeRow, OutcomeRow, PointRow, SeriesRow, StandingRow
from service.store.series_records import (
    BaselineRecord,
    ChangePoint,
    Columns,
    FigureState,
    ForeignPoint,
    MuteRecord,
    NoticeRecord,
    NotJudged,
    OutcomeRecord,
    PointRecord,
    SeriesRecord,
    SeriesState,
    StandingRecord,
    moment,
)

MOST_FOR_CHANGES = 1000
"""Change points are looked for in so many of the newest nights: the time that takes grows with their square."""

JUDGED = tuple(figure.name for figure in FIGURES if figure.judged)


# --- series ----------------------------------------------------------------------------------------------------------


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
        last = _row(session, after)
        behind = or_(SeriesRow.name > last.name, and_(SeriesRow.name == last.name, SeriesRow.id > last.id))
        query = query.where(behind)
    if text:
        query = query.where(SeriesRow.name.icontains(text, autoescape=True))
    if pinned is not None:
        query = query.where(SeriesRow.pinned.is_(pinned))
    if ok is not None:
        query = query.where(SeriesRow.last_ok.is_(ok))
    return [_series(row) for row in session.scalars(query)]


def get_series(session: Session, series_id: str) -> SeriesRecord:
    return _series(_row(session, series_id))


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


# --- points ----------------------------------------------------------------------------------------------------------

_POINT = (
    PointRow.id,
    PointRow.series_id,
    PointRow.figure,
    PointRow.at,
    PointRow.value,
    PointRow.lowest,
    PointRow.highest,
    PointRow.repeats,
    PointRow.baseline,
    PointRow.outcome_id,
)


def points_of(
    session: Session,
    series_id: str,
    figures: Sequence[str] | None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int | None = None,
    after: tuple[float, str, int] | None = None,
) -> list[PointRecord]:
    """Points in time order, those of one time by figure; of all figures where none are named.

    ``since`` is included and ``until`` is not. ``limit``: the oldest so many, of those behind the point ``after``: its
    Unix time, figure and id.
    """
    query = _within(select(*_POINT).where(PointRow.series_id == series_id), figures, since, until)
    if after is not None:
        query = query.where(tuple_(PointRow.at, PointRow.figure, PointRow.id) > after)
    rows = session.execute(query.order_by(PointRow.at, PointRow.figure, PointRow.id).limit(limit)).all()
    return _points(session, series_id, rows)


def columns_of(
    session: Session, series_id: str, figure: str, since: datetime | None = None, until: datetime | None = None
) -> Columns:
    """The same of one figure, as plain lists: a tenth of the time where there are very many."""
    wanted = select(PointRow.id, PointRow.at, PointRow.value, PointRow.lowest, PointRow.highest)
    query = _within(wanted.where(PointRow.series_id == series_id), [figure], since, until)
    rows = session.execute(query.order_by(PointRow.at, PointRow.id)).all()
    columns: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], [], []]
    return Columns(*columns)


def get_point(session: Session, series_id: str, point_id: int) -> PointRecord:
    row = session.execute(select(*_POINT).where(PointRow.id == point_id, PointRow.series_id == series_id)).one_or_none()
    if row is None:
        raise UnknownRecord("point", str(point_id))
    return _points(session, series_id, [row])[0]


def points_of_sweep(session: Session, sweep_id: str, figures: Sequence[str] = JUDGED) -> dict[str, list[PointRecord]]:
    """By cell id, what its figures were and what they were held against: a change against the baseline is ``ratio``."""
    query = (
        select(*_POINT, OutcomeRow.cell_id, OutcomeRow.sweep_id, OutcomeRow.run_id, OutcomeRow.versions)
        .join(OutcomeRow, OutcomeRow.id == PointRow.outcome_id)
        .where(OutcomeRow.sweep_id == sweep_id, PointRow.figure.in_(figures))
        .order_by(OutcomeRow.cell_id, PointRow.figure)
    )
    found: dict[str, list[PointRecord]] = {}
    for row in session.execute(query):
        found.setdefault(row.cell_id, []).append(_point(row, row))
    return found


def _within(
    query: Select[*tuple[Any, ...]], figures: Sequence[str] | None, since: datetime | None, until: datetime | None
) -> Select[*tuple[Any, ...]]:
    if figures is not None:
        query = query.where(PointRow.figure.in_(figures))
    if since is not None:
        query = query.where(PointRow.at >= since.timestamp())
    if until is not None:
        query = query.where(PointRow.at < until.timestamp())
    return query


def _points(session: Session, series_id: str, rows: Sequence[Row[*tuple[Any, ...]]]) -> list[PointRecord]:
    """An outcome has many points: it is read once."""
    wanted = select(OutcomeRow.id, OutcomeRow.sweep_id, OutcomeRow.cell_id, OutcomeRow.run_id, OutcomeRow.versions)
    query = wanted.where(OutcomeRow.series_id == series_id)
    ids = {row.outcome_id for row in rows}
    if len(ids) <= 100:
        query = query.where(OutcomeRow.id.in_(ids))
    outcomes = {row.id: row for row in session.execute(query)}
    return [_point(row, outcomes[row.outcome_id]) for row in rows]


def _point(row: Row[*tuple[Any, ...]], outcome: Row[*tuple[Any, ...]]) -> PointRecord:
    return PointRecord(
        figure=row.figure,
        value=row.value,
        lowest=row.lowest,
        highest=row.highest,
        repeats=row.repeats,
        id=row.id,
        series_id=row.series_id,
        at=moment(row.at),
        baseline=row.baseline,
        sweep_id=outcome.sweep_id,
        cell_id=outcome.cell_id,
        run_id=outcome.run_id,
        versions=outcome.versions,
    )


# --- how it stands ---------------------------------------------------------------------------------------------------


def state_of(session: Session, series_id: str, now: datetime | None = None) -> SeriesState:
    """Baseline, bounds and condition of each judged figure, where its level changed, and who has said what."""
    series = get_series(session, series_id)
    standings = {row.figure: row for row in standings_of(session, [series_id])}
    mutes = tuple(_mutes(session, series_id))
    moment_now = now or datetime.now(UTC)
    return SeriesState(
        series=series,
        figures={figure: _state(session, standings[figure]) for figure in JUDGED if figure in standings},
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


def _state(session: Session, standing: StandingRecord) -> FigureState:
    nights = nights_of(session, standing.series_id, standing.figure, limit=MOST_FOR_CHANGES)
    return FigureState(
        standing=standing,
        accepted=accepted(session, standing.series_id, standing.figure),
        changes=tuple(_changes(nights)),
    )


def _changes(nights: Sequence[Night]) -> Iterable[ChangePoint]:
    for found in change_points([night.value for night in nights]):
        night = nights[found.index]
        yield ChangePoint(night.id, moment(night.at), found.before, found.after)


# --- what people set -------------------------------------------------------------------------------------------------


def set_pinned(session: Session, series_id: str, pinned: bool) -> None:
    """Pinned series stand on the overview."""
    _row(session, series_id).pinned = pinned


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
    _row(session, series_id)
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


def accepted(session: Session, series_id: str, figure: str) -> BaselineRecord | None:
    """The newest baseline of a figure that somebody accepted."""
    query = select(BaselineRow).where(BaselineRow.series_id == series_id, BaselineRow.figure == figure)
    row = session.scalars(query.order_by(BaselineRow.id.desc()).limit(1)).first()
    return None if row is None else _baseline(row)


def mute(
    session: Session, series_id: str, until: datetime, reason: str, author: str, now: datetime | None = None
) -> MuteRecord:
    """Tell nothing of the series until then. A time that is over ends what was muted before."""
    _row(session, series_id)
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


def _mutes(session: Session, series_id: str) -> list[MuteRecord]:
    query = select(MuteRow).where(MuteRow.series_id == series_id).order_by(MuteRow.id.desc())
    return [_mute(row) for row in session.scalars(query)]


# --- notices ---------------------------------------------------------------------------------------------------------


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


# --- rows and records ------------------------------------------------------------------------------------------------


def _row(session: Session, series_id: str) -> SeriesRow:
    row = session.get(SeriesRow, series_id)
    if row is None:
        raise UnknownRecord("series", series_id)
    return row


def _series(row: SeriesRow) -> SeriesRecord:
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
