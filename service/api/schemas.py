"""What the API answers with, apart from reports and problems."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

from service.domain.lifecycle import State
from service.domain.verdict import Verdict
from service.store.records import EventRecord, SweepState, SweepSummary
from workers.protocol import Role


class Created(BaseModel):
    id: str


class SweepPage(BaseModel):
    """``next`` is the value of ``before`` for the page of older sweeps, absent on the last one."""

    sweeps: list[SweepSummary]
    next: str | None


class Phase(BaseModel):
    """What a rank is doing since ``at`` (Unix time)."""

    arm: Role | None
    rank: int | None
    name: str
    at: float


class Cell(BaseModel):
    id: str
    name: str
    state: State
    verdict: Verdict | None
    ok: bool | None
    duplicate_of: str | None
    phases: list[Phase]


class Sweep(BaseModel):
    id: str
    name: str
    created_at: datetime
    ended_at: datetime | None
    state: SweepState
    cells: list[Cell]


class EventPage(BaseModel):
    """``next`` is the value of ``after`` that reads on from here."""

    events: list[EventRecord]
    next: int


class Health(BaseModel):
    status: str
