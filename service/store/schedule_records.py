"""What the store takes in and gives out about schedules: frozen plain values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from service.domain.schedule import Cause, Missed


class NameTaken(ValueError):
    """There is a schedule of this name already."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is a schedule {name!r} already; change that one, or take another name")


class VersionConflict(ValueError):
    """Somebody changed the schedule in between."""

    def __init__(self, name: str, expected: int, found: int) -> None:
        super().__init__(
            f"schedule {name!r} was changed in between: this is about version {expected} and it is at {found}; "
            "read it again"
        )


class FireState(StrEnum):
    """``claimed``: a controller submits its sweep. ``skipped``: a missed time that nothing is done about."""

    CLAIMED = "claimed"
    SUBMITTED = "submitted"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class ScheduleFields:
    """What somebody writes of a schedule. ``cron`` and ``timezone`` as ``service.domain.cron`` reads them."""

    cron: str
    timezone: str
    missed: Missed
    suspended: bool
    matrix: dict[str, Any]


@dataclass(frozen=True)
class ScheduleSummary:
    """A schedule in a list. ``version`` grows with every change that somebody makes.

    ``key_id``: the API key that it was made with; its sweeps count as that key's.
    """

    name: str
    cron: str
    timezone: str
    missed: Missed
    suspended: bool
    version: int
    created_at: datetime
    updated_at: datetime
    next_at: datetime | None
    key_id: str | None


@dataclass(frozen=True)
class ScheduleRecord(ScheduleSummary):
    matrix: dict[str, Any]

    @property
    def fields(self) -> ScheduleFields:
        return ScheduleFields(self.cron, self.timezone, self.missed, self.suspended, self.matrix)


@dataclass(frozen=True)
class Fire:
    """``due_at``: the time that is served; ``None`` where somebody asked. ``detail``: why there is no sweep."""

    id: int
    schedule: str
    due_at: datetime | None
    cause: Cause
    state: FireState
    claimed_at: datetime
    attempts: int
    ended_at: datetime | None
    sweep_id: str | None
    detail: str | None


@dataclass(frozen=True)
class Claim:
    """A fire that the caller now has to submit. ``owner`` and ``until``: whose it is, and for how long."""

    owner: str
    until: datetime
