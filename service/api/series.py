"""Series: how the figures of a configuration go over time, what is held against what, and what people say of it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field
from starlette.responses import StreamingResponse

from service.api.artifacts import SAFE
from service.api.dependencies import SettingsDependency, StoreDependency
from service.api.paging import After, Limit, cut
from service.api.principal import PrincipalDependency
from service.api.problems import RESPONSES, ProblemError
from service.domain import cursor
from service.domain.notices import NoticeKind
from service.store import Store, repositories
from service.store.series_records import (
    BaselineRecord,
    ForeignPoint,
    MuteRecord,
    NoticeRecord,
    NotJudged,
    PointRecord,
    SeriesRecord,
    SeriesState,
)

SERIES, POINTS = "series", "points"
MOST_POINTS = 10_000
_LARGEST = 2**63 - 1
_YEARS = (1970, 9000)
"""Beyond them not every zone has a time."""

router = APIRouter(prefix="/v1", tags=["series"], responses=RESPONSES)


def _printable(text: str) -> str:
    if not text.isprintable() or not text.strip():
        raise ValueError("a reason has printable characters")
    return text


def _usable(at: datetime) -> datetime:
    if not _YEARS[0] <= at.year <= _YEARS[1]:
        raise ValueError(f"a time is of the years {_YEARS[0]} to {_YEARS[1]}")
    return at.astimezone(UTC)


Time = Annotated[AwareDatetime, AfterValidator(_usable)]
Reason = Annotated[
    str, Field(min_length=1, max_length=500, examples=["the new compiler is worth it"]), AfterValidator(_printable)
]
Figures = Annotated[
    list[str] | None, Query(alias="figure", max_length=50, description="Only this figure; may be given several times")
]
Since = Annotated[Time | None, Query(description="From this time on, with its zone")]
Until = Annotated[Time | None, Query(description="Up to this time, without it")]


class SeriesPage(BaseModel):
    """``next`` is the value of ``after`` for the page that follows, absent on the last one."""

    series: list[SeriesRecord]
    next: str | None


class PointPage(BaseModel):
    """``next`` is the value of ``after`` for the page that follows, absent on the last one."""

    points: list[PointRecord]
    next: str | None


class NoticePage(BaseModel):
    """``next`` is the value of ``before`` for the page of older ones, absent on the last one."""

    notices: list[NoticeRecord]
    next: int | None


class NewBaseline(BaseModel):
    """From this point on the figure is as it should be. ``point``: the id of one of its points."""

    model_config = ConfigDict(extra="forbid")

    figure: str = Field(max_length=100, examples=["cold_s"])
    point: int = Field(ge=1, le=_LARGEST)
    reason: Reason


class NewMute(BaseModel):
    """Until then nothing is told of the series; a time that is over ends that."""

    model_config = ConfigDict(extra="forbid")

    until: Time
    reason: Reason


class Pin(BaseModel):
    """Pinned series stand on the overview."""

    model_config = ConfigDict(extra="forbid")

    pinned: bool


# --- reading ---------------------------------------------------------------------------------------------------------


@router.get("/series")
def list_series(
    store: StoreDependency,
    limit: Limit = 50,
    after: After = None,
    text: Annotated[str | None, Query(max_length=200, description="A part of the name")] = None,
    pinned: bool | None = None,
    ok: Annotated[bool | None, Query(description="What the newest outcome was")] = None,
) -> SeriesPage:
    """Series by name, each with its newest outcome."""
    behind = None if after is None else str(cursor.decode(SERIES, after, str)[0])
    with store.reading() as session:
        found = repositories.series.list_series(session, limit + 1, behind, text, pinned, ok)
    page, last = cut(found, limit)
    return SeriesPage(series=page, next=None if last is None else cursor.encode(SERIES, last.id))


@router.get("/series/{series_id}")
def get_series(series_id: str, store: StoreDependency) -> SeriesState:
    """A series with the baseline, bounds and condition of each figure, changes of level, and what people said."""
    with store.reading() as session:
        return repositories.series_state.state_of(session, series_id)


@router.get("/series/{series_id}/points")
def list_points(
    series_id: str,
    store: StoreDependency,
    figures: Figures = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, Query(ge=1, le=MOST_POINTS, description="Items on a page")] = 1000,
    after: After = None,
) -> PointPage:
    """Its points in time order: median, least and largest of the repeats, and what they were measured with."""
    behind = None if after is None else _behind(after)
    with store.reading() as session:
        repositories.series.get_series(session, series_id)
        found = repositories.series_points.points_of(session, series_id, figures, since, until, limit + 1, behind)
    page, last = cut(found, limit)
    return PointPage(points=page, next=None if last is None else _cursor(last))


def _cursor(last: PointRecord) -> str:
    return cursor.encode(POINTS, last.at.timestamp().hex(), last.figure, last.id)


def _behind(after: str) -> tuple[float, str, int]:
    at, figure, point_id = cursor.decode(POINTS, after, str, str, int)
    try:
        return float.fromhex(str(at)), str(figure), int(point_id)
    except (ValueError, OverflowError) as error:
        raise cursor.BadCursor(POINTS) from error


_COLUMNS = ("id", "at", "figure", "value", "lowest", "highest", "repeats", "baseline", "sweep_id", "cell_id", "run_id")
_VERSIONS = ("vllm", "torch", "ray", "python", "driver")
_CSV: dict[int | str, dict[str, Any]] = {
    HTTPStatus.OK: {"description": "The points", "content": {"text/csv": {"schema": {"type": "string"}}}}
}


@router.get("/series/{series_id}/points.csv", response_class=StreamingResponse, responses=_CSV)
def export_points(
    series_id: str, store: StoreDependency, figures: Figures = None, since: Since = None, until: Until = None
) -> StreamingResponse:
    """The same as CSV, all of them, with a column for each version."""
    with store.reading() as session:
        repositories.series.get_series(session, series_id)
    headers = {"Content-Disposition": f'attachment; filename="{series_id}.csv"', **SAFE}
    return StreamingResponse(_lines(store, series_id, figures, since, until), headers=headers, media_type="text/csv")


def _lines(
    store: Store, series_id: str, figures: Sequence[str] | None, since: datetime | None, until: datetime | None
) -> Iterator[str]:
    yield _line((*_COLUMNS, *_VERSIONS))
    behind: tuple[float, str, int] | None = None
    while True:
        with store.reading() as session:
            found = repositories.series_points.points_of(session, series_id, figures, since, until, MOST_POINTS, behind)
        yield "".join(map(_row, found))
        if len(found) < MOST_POINTS:
            return
        behind = (found[-1].at.timestamp(), found[-1].figure, found[-1].id)


def _row(point: PointRecord) -> str:
    versions = [point.versions.get(name) for name in _VERSIONS]
    values = [point.at.isoformat() if name == "at" else getattr(point, name) for name in _COLUMNS]
    return _line((*values, *versions))


def _line(values: Sequence[object]) -> str:
    file = io.StringIO(newline="")
    csv.writer(file).writerow(values)
    return file.getvalue()


@router.get("/notices")
def list_notices(
    store: StoreDependency,
    limit: Limit = 50,
    before: Annotated[
        int | None, Query(ge=1, le=_LARGEST, description="Only older ones: `next` of the page before")
    ] = None,
    kinds: Annotated[
        list[NoticeKind] | None, Query(alias="kind", max_length=10, description="Only this kind; several may be given")
    ] = None,
    series: Annotated[str | None, Query(max_length=100, description="Only of this series")] = None,
) -> NoticePage:
    """What people should hear of, newest first: what, how much, since when, between which versions."""
    with store.reading() as session:
        found = repositories.series_notices.notices(session, limit + 1, before, kinds, series)
    page, last = cut(found, limit)
    return NoticePage(notices=page, next=None if last is None else last.id)


# --- what people set -------------------------------------------------------------------------------------------------


@router.post("/series/{series_id}/baseline", status_code=HTTPStatus.CREATED)
def accept_baseline(
    series_id: str,
    new: NewBaseline,
    store: StoreDependency,
    settings: SettingsDependency,
    principal: PrincipalDependency,
) -> BaselineRecord:
    """Accept that from this point on a figure is as it should be. What follows is held against it."""
    try:
        with store.transaction() as session:
            return repositories.series_said.accept(
                session, series_id, new.figure, new.point, new.reason, principal.name, settings.regression_rules
            )
    except (NotJudged, ForeignPoint) as error:
        raise ProblemError(HTTPStatus.CONFLICT, "no-baseline", str(error)) from error


@router.post("/series/{series_id}/mute", status_code=HTTPStatus.CREATED)
def mute_series(series_id: str, new: NewMute, store: StoreDependency, principal: PrincipalDependency) -> MuteRecord:
    """Tell nothing of a series until a time, and make no verdict of its times. What is muted is still measured."""
    with store.transaction() as session:
        return repositories.series_said.mute(session, series_id, new.until, new.reason, principal.name)


@router.post("/series/{series_id}/pin")
def pin_series(series_id: str, pin: Pin, store: StoreDependency) -> SeriesRecord:
    """Put a series on the overview, or take it off."""
    with store.transaction() as session:
        repositories.series_said.set_pinned(session, series_id, pin.pinned)
        return repositories.series.get_series(session, series_id)
