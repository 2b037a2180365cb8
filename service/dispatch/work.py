"""What a stored job needs to be run by any controller, at any time: all that the engine environments answered.

It is kept as plain JSON beside the job, and read back without asking an engine environment again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from service.dispatch.plan import Plan, PlannedCell
from service.dispatch.runs import Workplace
from service.domain.arms import ArmNeed, RunNeeds
from service.domain.arms import needs as needs_of
from service.domain.lifecycle import Course, Event, Kind, Level, State, handle
from service.domain.repeat import ONCE, Repeat
from service.domain.timeouts import Timeouts
from service.settings import Settings
from service.store import repositories
from service.store.queue_records import JobKind, JobRecord, NewJob
from workers.protocol import BatchPlan, Check, Environment, EnvironmentSpec, Role, Shape

AUDIT_ALONE = (Check.AUDIT,)
"""The checks of a cell that is not run."""


@dataclass(frozen=True)
class Work:
    """``need``: of a shared arm. ``needs``, ``batch``: of a cell. ``environment``: the name of its place."""

    environment: str
    need: ArmNeed | None = None
    needs: RunNeeds | None = None
    batch: BatchPlan | None = None

    def plain(self) -> dict[str, Any]:
        found: dict[str, Any] = _WORK.dump_python(self, mode="json")
        return found

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> Work:
        return _WORK.validate_python(dict(plain))


@dataclass(frozen=True)
class Place:
    """An engine environment: its interpreter here, what it answered, and how to have it on another machine."""

    python: str
    environment: Environment
    spec: EnvironmentSpec | None = None


@dataclass(frozen=True)
class Places:
    """What all jobs of a sweep have in common. ``by_name``: its engine environments.

    It is read for every run: nothing stands here that grows with the number of cells.
    """

    by_name: dict[str, Place]
    timeouts: Timeouts
    repeat: Repeat = ONCE
    traces: bool = False

    @classmethod
    def of(cls, plan: Plan) -> Places:
        by_name = {
            name: Place(str(engine.settings.python), plan.environments[name], engine.spec)
            for name, engine in plan.engines.items()
        }
        return cls(by_name, plan.matrix.timeouts, plan.matrix.repeat, plan.matrix.traces)

    def workplace(self, sweep_id: str, name: str, settings: Settings) -> Workplace:
        place = self.by_name[name]
        return Workplace(
            sweep_id=sweep_id,
            settings=settings.model_copy(update={"python": Path(place.python)}),
            environment=place.environment,
            timeouts=self.timeouts,
            repeat=self.repeat,
            engine=place.spec,
            traces=self.traces,
        )

    def plain(self) -> dict[str, Any]:
        found: dict[str, Any] = _PLACES.dump_python(self, mode="json")
        return found

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> Places:
        return _PLACES.validate_python(dict(plain))


_WORK = TypeAdapter(Work)
_PLACES = TypeAdapter(Places)


def stored_work(session: Session, job: JobRecord, settings: Settings) -> tuple[Work, Workplace]:
    """What ``job`` needs, and the place where it is run."""
    work = Work.read(job.work)
    places = Places.read(repositories.get_queue(session, job.sweep_id).places)
    return work, places.workplace(job.sweep_id, work.environment, settings)


def cell_job_id(sweep_id: str, cell_id: str) -> str:
    return f"{sweep_id}/{cell_id}"


def is_run(item: PlannedCell) -> bool:
    """Has the cell a run of its own? Some share another's, and of some only the audit was asked."""
    return item.duplicate_of is None and item.cannot_run is None and item.cell.checks != AUDIT_ALONE


def jobs(sweep_id: str, plan: Plan, places: Places, settings: Settings) -> list[NewJob]:
    """The jobs of a sweep: each shared arm once, with the first cell that needs it, and then the cells."""
    arms: dict[str, NewJob] = {}
    cells: list[NewJob] = []
    for item in filter(is_run, plan.cells):
        place = places.workplace(sweep_id, item.cell.environment, settings)
        shape = shape_of(item)
        wanted = needs_of(item.cell, shape, item.batch)
        keys = {place.shared_key(need): need for need in wanted.shared}
        for key, need in keys.items():
            arms.setdefault(key, _arm_job(key, need, item, place, shape))
        cells.append(_cell_job(sweep_id, item, wanted, tuple(keys), place, shape))
    accepted, _ = handle(Course(Level.JOB, "", State.AUDITING), Event(Kind.ACCEPT, "its sweep was submitted"))
    ordered = enumerate([*arms.values(), *cells])
    return [replace(job, position=position, story=accepted.story) for position, job in ordered]


def _arm_job(key: str, need: ArmNeed, item: PlannedCell, place: Workplace, shape: Shape) -> NewJob:
    ranks = 1 if need.role is Role.REFERENCE else ranks_of(shape)
    work = Work(item.cell.environment, need=need)
    return NewJob(key, JobKind.ARM, item.cell.id, 0, ranks, place.environment.devices, work.plain())


def _cell_job(
    sweep_id: str,
    item: PlannedCell,
    wanted: RunNeeds,
    keys: tuple[str, ...],
    place: Workplace,
    shape: Shape,
) -> NewJob:
    work = Work(item.cell.environment, needs=wanted, batch=item.batch)
    job_id = cell_job_id(sweep_id, item.cell.id)
    # Where all arms are shared, the run only compares.
    ranks = ranks_of(shape) if wanted.own else 1
    return NewJob(job_id, JobKind.CELL, item.cell.id, 0, ranks, place.environment.devices, work.plain(), keys)


def ranks_of(shape: Shape) -> int:
    return shape.tensor_parallel_size * shape.pipeline_parallel_size


def shape_of(item: PlannedCell) -> Shape:
    if item.audited.shape is None:
        raise ValueError(f"cell {item.cell.name} was refused at audit and cannot be run")
    return item.audited.shape
