"""Pages of schedules: what comes when, what came of it, and forms to change it by the same rules as the API."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from starlette.responses import HTMLResponse, RedirectResponse
from starlette.responses import Response as Answer

from service.admission import admit
from service.api import schedules as api
from service.api.dependencies import ControllerDependency, SettingsDependency, StoreDependency
from service.api.schedules import NewSchedule, ScheduleChanges, SchedulerDependency
from service.dashboard.complaints import NONE, Complaints, attempt
from service.dashboard.forms import form
from service.dashboard.frame import Frame
from service.dashboard.matrix_text import text_of
from service.dashboard.pages import FrameDependency, html
from service.dashboard.render import render
from service.domain import cron
from service.domain.document import Document, parse
from service.domain.schedule import Missed
from service.settings import Settings
from service.store import Store, repositories
from service.store.schedule_records import ScheduleRecord

PAGE = 100
NEXT = 5
"""Times that a schedule's page shows."""

FIRES = 20

BLANK = {"name": "", "cron": "30 2 * * *", "timezone": "UTC", "missed": str(Missed.SKIP), "matrix": ""}

MISSED = (
    (Missed.SKIP, "nothing is done about it"),
    (Missed.ONCE, "one sweep for all that were missed"),
)

router = APIRouter(include_in_schema=False)

Fields = Annotated[dict[str, str], Depends(form)]


@router.get("/schedules/")
def list_schedules(store: StoreDependency, frame: FrameDependency, after: str | None = None) -> HTMLResponse:
    """Schedules by name, and a form for one more."""
    return _list(store, frame, BLANK, NONE, after)


@router.post("/schedules/")
def add_schedule(
    request: Request, store: StoreDependency, settings: SettingsDependency, frame: FrameDependency, fields: Fields
) -> Answer:
    """One more, or the form again with what is wrong."""

    def add() -> ScheduleRecord:
        given = {key: fields.get(key, "").strip() for key in ("name", "cron", "timezone", "missed")}
        new = NewSchedule.model_validate({**given, "matrix": dict(_document(fields, settings).tree)})
        return api.create_schedule(request, Response(), store, settings, new)

    done = attempt(add)
    if isinstance(done, Complaints):
        return _list(store, frame, {**BLANK, **fields}, done)
    return RedirectResponse(done.name, HTTPStatus.SEE_OTHER)


@router.get("/schedules/{name}")
def show_schedule(name: str, store: StoreDependency, frame: FrameDependency) -> HTMLResponse:
    """One schedule: its next times, what it fired, and a form to change it."""
    with store.reading() as session:
        record = repositories.get_schedule(session, name)
    return _one(store, frame, record, _written(record), NONE)


@router.post("/schedules/{name}")
def change_schedule(
    name: str,
    store: StoreDependency,
    settings: SettingsDependency,
    controller: ControllerDependency,
    frame: FrameDependency,
    fields: Fields,
) -> Answer:
    """Change it as the form says, if nobody else did in between. Another matrix is audited before."""

    def change() -> ScheduleRecord:
        given: dict[str, object] = {key: fields.get(key, "").strip() for key in ("cron", "timezone", "missed")}
        document = _document(fields, settings)
        with store.reading() as session:
            same = repositories.get_schedule(session, name).matrix == document.tree
        if not same:
            given["matrix"] = dict(document.tree)
        changes = api.audited(ScheduleChanges.model_validate(given), settings, controller)
        return api.change_schedule(name, Response(), store, settings, _version(fields), changes)

    return _answer(store, frame, name, fields, attempt(change))


@router.post("/schedules/{name}/suspend")
def suspend_schedule(
    name: str, store: StoreDependency, settings: SettingsDependency, frame: FrameDependency, fields: Fields
) -> Answer:
    """It fires no more, until it is resumed."""
    return _set_suspended(True, name, store, settings, frame, fields)


@router.post("/schedules/{name}/resume")
def resume_schedule(
    name: str, store: StoreDependency, settings: SettingsDependency, frame: FrameDependency, fields: Fields
) -> Answer:
    """It fires again, from its next time on."""
    return _set_suspended(False, name, store, settings, frame, fields)


def _set_suspended(
    suspended: bool, name: str, store: Store, settings: Settings, frame: Frame, fields: Mapping[str, str]
) -> Answer:
    changes = ScheduleChanges(suspended=suspended)
    done = attempt(lambda: api.change_schedule(name, Response(), store, settings, _version(fields), changes))
    return _answer(store, frame, name, None, done)


@router.post("/schedules/{name}/fires")
def fire_schedule(name: str, scheduler: SchedulerDependency) -> RedirectResponse:
    """Submit its sweep now. What became of that stands on its page."""
    api.fire_schedule(name, scheduler)
    return RedirectResponse(f"../{name}", HTTPStatus.SEE_OTHER)


@router.post("/schedules/{name}/delete")
def delete_schedule(name: str, store: StoreDependency, frame: FrameDependency, fields: Fields) -> Answer:
    """Delete it, if nobody changed it in between. Its sweeps stay."""
    done = attempt(lambda: api.delete_schedule(name, store, _version(fields)))
    if isinstance(done, Complaints):
        return _answer(store, frame, name, None, done)
    return RedirectResponse("../", HTTPStatus.SEE_OTHER)


def _answer(
    store: Store, frame: Frame, name: str, fields: Mapping[str, str] | None, done: ScheduleRecord | Complaints
) -> Answer:
    if not isinstance(done, Complaints):
        # From the schedule's own page, and from those below it.
        return RedirectResponse(name if fields is not None else f"../{name}", HTTPStatus.SEE_OTHER)
    with store.reading() as session:
        record = repositories.get_schedule(session, name)
    return _one(store, frame, record, {**_written(record), **(fields or {})}, done)


def _list(
    store: Store, frame: Frame, fields: Mapping[str, str], complaints: Complaints, after: str | None = None
) -> HTMLResponse:
    with store.reading() as session:
        found = repositories.list_schedules(session, PAGE + 1, after)
    page = render(
        "schedules.html",
        frame,
        schedules=found[:PAGE],
        following=found[PAGE - 1].name if len(found) > PAGE else None,
        fields=fields,
        complaints=complaints,
        missed=MISSED,
    )
    return html(page, complaints.status)


def _one(
    store: Store, frame: Frame, record: ScheduleRecord, fields: Mapping[str, str], complaints: Complaints
) -> HTMLResponse:
    with store.reading() as session:
        fires = repositories.list_fires(session, record.name, FIRES)
    page = render(
        "schedule.html",
        frame,
        schedule=record,
        following=_following(record),
        fires=fires,
        fields=fields,
        complaints=complaints,
        missed=MISSED,
    )
    return html(page, complaints.status)


def _following(record: ScheduleRecord) -> list[datetime]:
    """When it is due next: from its next time on, which may have passed and wait to be served."""
    if record.next_at is None:
        return []
    later = cron.read(record.cron, record.timezone, datetime.now(UTC)).after(record.next_at)
    return [record.next_at, *islice(later, NEXT - 1)]


def _written(record: ScheduleRecord) -> dict[str, str]:
    return {
        "cron": record.cron,
        "timezone": record.timezone,
        "missed": str(record.missed),
        "matrix": text_of(record.matrix),
        "version": str(record.version),
    }


def _document(fields: Mapping[str, str], settings: Settings) -> Document:
    """The matrix that was written, checked while it is known where in the text everything stands.

    Raises:
        MatrixError: it cannot be used.
    """
    document = parse(fields.get("matrix", ""), max_bytes=settings.body_limit_bytes)
    admit(document, settings)
    return document


def _version(fields: Mapping[str, str]) -> int:
    """
    Raises:
        ProblemError: the form does not say which version it is about.
    """
    return api.version_of(fields.get("version"))
