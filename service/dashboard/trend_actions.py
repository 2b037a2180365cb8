"""What people say of a series: this is as it should be, tell nothing for a while, keep it in sight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, time
from http import HTTPStatus
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends
from fastapi.exceptions import RequestValidationError
from starlette.responses import RedirectResponse, Response

from service.api import series as api
from service.api.dependencies import SettingsDependency, StoreDependency
from service.api.principal import PrincipalDependency
from service.api.series import NewBaseline, NewMute, Pin
from service.dashboard.complaints import Complaints, attempt
from service.dashboard.forms import form
from service.dashboard.frame import Frame
from service.dashboard.pages import FrameDependency
from service.dashboard.trend_pages import again
from service.store import Store

END = "the end of what was muted"
"""The reason that is noted where somebody ends it."""

router = APIRouter(include_in_schema=False)

Fields = Annotated[dict[str, str], Depends(form)]


@router.post("/trends/{series_id}/baseline")
def accept_baseline(
    series_id: str,
    store: StoreDependency,
    settings: SettingsDependency,
    frame: FrameDependency,
    principal: PrincipalDependency,
    fields: Fields,
) -> Response:
    """From the night that was chosen on the figure is as it should be."""

    def accept() -> None:
        figure, point_id = _point(fields)
        new = NewBaseline.model_validate({"figure": figure, "point": point_id, "reason": _reason(fields)})
        api.accept_baseline(series_id, new, store, settings, principal)

    return _answer(store, frame, series_id, accept, fields, "accept")


@router.post("/trends/{series_id}/mute")
def mute_series(
    series_id: str, store: StoreDependency, frame: FrameDependency, principal: PrincipalDependency, fields: Fields
) -> Response:
    """Tell nothing of it until the end of a day."""

    def mute() -> None:
        new = NewMute.model_validate({"until": _until(fields), "reason": _reason(fields)})
        api.mute_series(series_id, new, store, principal)

    return _answer(store, frame, series_id, mute, fields, "mute")


@router.post("/trends/{series_id}/unmute")
def unmute_series(series_id: str, store: StoreDependency, principal: PrincipalDependency) -> Response:
    """Tell of it again from now on."""
    api.mute_series(series_id, NewMute(until=datetime.now(UTC), reason=END), store, principal)
    return _back(series_id)


@router.post("/trends/{series_id}/pin")
def pin_series(series_id: str, store: StoreDependency, fields: Fields) -> Response:
    """Show it on the overview, or no more."""
    api.pin_series(series_id, Pin(pinned=fields.get("pinned") == "true"), store)
    return _back(series_id)


def _answer(
    store: Store, frame: Frame, series_id: str, action: Callable[[], None], fields: Mapping[str, str], form: str
) -> Response:
    """``form``: which one of the page it was, as two of them have a reason."""
    done = attempt(action)
    if isinstance(done, Complaints):
        return again(store, frame, series_id, done, {**fields, "form": form})
    return _back(series_id)


def _back(series_id: str) -> RedirectResponse:
    return RedirectResponse(f"../{quote(series_id, safe='')}", HTTPStatus.SEE_OTHER)


def _point(fields: Mapping[str, str]) -> tuple[str, str]:
    figure, _, point_id = fields.get("point", "").rpartition(":")
    if not figure:
        raise refused("point", "choose a figure and a night")
    return figure, point_id


def _reason(fields: Mapping[str, str]) -> str:
    return fields.get("reason", "").strip()


def _until(fields: Mapping[str, str]) -> datetime:
    try:
        day = datetime.strptime(fields.get("until", ""), "%Y-%m-%d").date()
    except ValueError as error:
        raise refused("until", "write a day, as 2026-11-30") from error
    until = datetime.combine(day, time.max, UTC)
    if until < datetime.now(UTC):
        raise refused("until", "this day is over; take a later one")
    return until


def refused(field: str, said: str) -> RequestValidationError:
    """A form that cannot be taken because of one field."""
    return RequestValidationError([{"type": "invalid", "loc": ("body", field), "msg": said, "input": None}])
