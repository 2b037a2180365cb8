"""Schedules: matrices that are submitted again and again, at times that a cron expression gives.

Two people may edit one: who changes or deletes it says which version they have seen (``If-Match`` with the ``ETag``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any, Protocol, TypeVar

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError, WithJsonSchema

from service.admission import admit
from service.api.controller import Controller
from service.api.dependencies import (
    ControllerDependency,
    JsonDependency,
    SettingsDependency,
    StoreDependency,
    controller_of,
)
from service.api.principal import principal_of
from service.api.problems import RESPONSES, ProblemError
from service.domain.cron import InvalidTime
from service.domain.document import from_tree
from service.domain.schedule import Missed
from service.settings import Settings
from service.store import repositories
from service.store.schedule_records import (
    Fire,
    NameTaken,
    ScheduleFields,
    ScheduleRecord,
    ScheduleSummary,
    VersionConflict,
)

router = APIRouter(prefix="/v1/schedules", tags=["schedules"], responses=RESPONSES)

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"

MissedPolicy = Annotated[Missed, Strict(False), WithJsonSchema({"type": "string", "enum": list(Missed)})]
"""Written out, since a body's schema stands by itself in the description of the API."""


class Scheduler(Protocol):
    """What the API asks of the one that fires schedules."""

    def fire(self, name: str) -> Fire:
        """Submit the sweep of a schedule now; what became of that."""
        ...


class NewSchedule(BaseModel):
    """``cron``: minute, hour, day of month, month, day of week, by the clock of ``timezone``."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [
                {
                    "name": "nightly",
                    "cron": "30 2 * * mon-fri",
                    "timezone": "Europe/Berlin",
                    "missed": "once",
                    "matrix": {
                        "name": "nightly",
                        "engine": {"model": "tiny:llama", "environment": "newest"},
                        "environments": {"newest": {"vllm": "latest"}},
                    },
                }
            ]
        },
    )

    name: str = Field(pattern=NAME, description="Unique, and how it is addressed.")
    cron: str = Field(max_length=200, examples=["30 2 * * mon-fri"])
    timezone: str = Field(default="UTC", max_length=64, examples=["Europe/Berlin"])
    missed: MissedPolicy = Field(
        default=Missed.SKIP, description="What is done about times at which no controller was there."
    )
    suspended: bool = False
    matrix: dict[str, Any] = Field(description="A matrix, as in a matrix file; submitted anew each time.")


class ScheduleChanges(BaseModel):
    """What is left out stays as it is."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"suspended": True}]})

    cron: str | None = Field(default=None, max_length=200)
    timezone: str | None = Field(default=None, max_length=64)
    missed: MissedPolicy | None = None
    suspended: bool | None = None
    matrix: dict[str, Any] | None = None


class SchedulePage(BaseModel):
    """``next`` is the value of ``after`` for the following page, absent on the last one."""

    schedules: list[ScheduleSummary]
    next: str | None


class FirePage(BaseModel):
    """``next`` is the value of ``before`` for the page of older ones, absent on the last one."""

    fires: list[Fire]
    next: int | None


Body = TypeVar("Body", bound=BaseModel)


def _validated(model: type[Body], body: Any) -> Body:
    try:
        return model.model_validate(body)
    except ValidationError as error:
        found = [{**item, "loc": ("body", *item["loc"])} for item in error.errors(include_url=False)]
        raise RequestValidationError(found) from error


def _new(body: JsonDependency) -> NewSchedule:
    return _validated(NewSchedule, body)


def _changes(body: JsonDependency, settings: SettingsDependency, controller: ControllerDependency) -> ScheduleChanges:
    return audited(_validated(ScheduleChanges, body), settings, controller)


def audited(changes: ScheduleChanges, settings: Settings, controller: Controller) -> ScheduleChanges:
    """Another matrix is audited as that of a new schedule is.

    Raises:
        MatrixError: it cannot be used.
    """
    if changes.matrix is not None:
        controller.preview(from_tree(_matrix(changes.matrix, settings)))
    return changes


def _described(model: type[BaseModel]) -> dict[str, Any]:
    """How OpenAPI describes a body that is read by ``JsonDependency``."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": model.model_json_schema()}}}}


def version_of(if_match: Annotated[str | None, Header(description="The `ETag` of what was read")] = None) -> int:
    """The version of a schedule that a change is about.

    Raises:
        ProblemError: none is said, or what is no version.
    """
    if if_match is None:
        raise ProblemError(
            HTTPStatus.PRECONDITION_REQUIRED,
            "if-match-needed",
            "somebody else may have changed this schedule; read it and send its ETag as If-Match",
        )
    text = if_match.removeprefix("W/").strip('"')
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise ProblemError(
            HTTPStatus.PRECONDITION_FAILED, "changed-since", "If-Match is no ETag of a schedule; read it again"
        )
    return int(text)


def _scheduler(request: Request) -> Scheduler:
    scheduler: Scheduler = request.app.state.scheduler
    return scheduler


VersionDependency = Annotated[int, Depends(version_of)]
SchedulerDependency = Annotated[Scheduler, Depends(_scheduler)]


@router.post("", status_code=HTTPStatus.CREATED, openapi_extra=_described(NewSchedule))
def create_schedule(
    request: Request,
    response: Response,
    store: StoreDependency,
    settings: SettingsDependency,
    new: Annotated[NewSchedule, Depends(_new)],
) -> ScheduleRecord:
    """Submit a matrix at the times of a cron expression. Location is where to look at it and change it.

    The matrix is audited now, so that what cannot be used is known by day. Its sweeps count as those of the key that
    makes the schedule.
    """
    matrix = _matrix(new.matrix, settings)
    controller_of(request).preview(from_tree(matrix))
    fields = ScheduleFields(new.cron, new.timezone, new.missed, new.suspended, matrix)
    with _refusing(), store.transaction() as session:
        created = repositories.create_schedule(
            session, new.name, fields, datetime.now(UTC), principal_of(request).key_id
        )
    path = request.app.url_path_for("get_schedule", name=new.name)
    response.headers["Location"] = request.scope.get("root_path", "") + path
    return _tagged(response, created)


@router.get("")
def list_schedules(
    store: StoreDependency,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    after: Annotated[str | None, Query(description="Only schedules behind this one: `next` of a page")] = None,
) -> SchedulePage:
    """Schedules by name, without their matrices."""
    with store.reading() as session:
        found = repositories.list_schedules(session, limit + 1, after)
    page = found[:limit]
    return SchedulePage(schedules=page, next=page[-1].name if len(found) > limit else None)


@router.get("/{name}")
def get_schedule(name: str, response: Response, store: StoreDependency) -> ScheduleRecord:
    """A schedule with its matrix. Its ETag is needed to change it."""
    with store.reading() as session:
        return _tagged(response, repositories.get_schedule(session, name))


@router.patch("/{name}", openapi_extra=_described(ScheduleChanges))
def change_schedule(
    name: str,
    response: Response,
    store: StoreDependency,
    settings: SettingsDependency,
    version: VersionDependency,
    changes: Annotated[ScheduleChanges, Depends(_changes)],
) -> ScheduleRecord:
    """Change what is given; suspend or resume. Times that passed while it was suspended were not missed."""
    given = changes.model_dump(exclude_none=True)
    if "matrix" in given:
        given["matrix"] = _matrix(given["matrix"], settings)
    with _refusing(), store.transaction() as session:
        fields = replace(repositories.get_schedule(session, name).fields, **given)
        changed = repositories.change_schedule(session, name, fields, version, datetime.now(UTC))
    return _tagged(response, changed)


@router.delete("/{name}")
def delete_schedule(name: str, store: StoreDependency, version: VersionDependency) -> ScheduleRecord:
    """Delete a schedule and the record of what it fired; what it was. Its sweeps stay."""
    with _refusing(), store.transaction() as session:
        deleted = repositories.get_schedule(session, name)
        repositories.delete_schedule(session, name, version)
    return deleted


@router.post("/{name}/fires", status_code=HTTPStatus.CREATED)
def fire_schedule(name: str, scheduler: SchedulerDependency) -> Fire:
    """Submit its sweep now, suspended or not. Its times stay as they are."""
    return scheduler.fire(name)


@router.get("/{name}/fires")
def list_fires(
    name: str,
    store: StoreDependency,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1, description="Only older ones: `next` of a page")] = None,
) -> FirePage:
    """What a schedule fired, newest first: the time, the sweep, or why there is none."""
    with store.reading() as session:
        repositories.get_schedule(session, name)
        found = repositories.list_fires(session, name, limit + 1, before)
    page = found[:limit]
    return FirePage(fires=page, next=page[-1].id if len(found) > limit else None)


def _matrix(tree: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """``tree`` under the rules of any submitted matrix, what the operator allows included.

    Raises:
        MatrixError: it breaks them.
    """
    document = from_tree(tree)
    admit(document, settings)
    return dict(document.tree)


def _tagged(response: Response, schedule: ScheduleRecord) -> ScheduleRecord:
    response.headers["ETag"] = f'"{schedule.version}"'
    return schedule


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except InvalidTime as error:
        item = {"type": "invalid-time", "loc": ("body", error.field), "msg": str(error), "input": None}
        raise RequestValidationError([item]) from error
    except NameTaken as error:
        raise ProblemError(HTTPStatus.CONFLICT, "name-taken", str(error)) from error
    except VersionConflict as error:
        raise ProblemError(HTTPStatus.PRECONDITION_FAILED, "changed-since", str(error)) from error
