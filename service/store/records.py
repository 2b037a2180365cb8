"""What the store takes in and gives out: frozen plain values, so nothing outside the store holds a database row."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from service.domain.lifecycle import State
from service.domain.lifecycle import SweepState as SweepState
from service.domain.verdict import Verdict
from workers.protocol import (
    ArmReport,
    AuditedCell,
    Change,
    Check,
    Environment,
    Event,
    Evidence,
    Patch,
    PatchState,
    Problem,
    Role,
    RunSpec,
    Settings,
    Shape,
)


class UnknownRecord(LookupError):
    """The store has no such sweep, cell, run or arm."""

    def __init__(self, kind: str, key: str) -> None:
        super().__init__(f"there is no {kind} {key!r}")
        self.kind = kind
        self.key = key


class ArmState(StrEnum):
    LEASED = "leased"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class NewSweep:
    """A sweep to create. ``matrix`` is the plain tree as submitted, ``owner`` the controller process that drives it."""

    id: str
    name: str
    created_at: datetime
    owner: str
    matrix: dict[str, Any]
    timeouts: dict[str, Any]


@dataclass(frozen=True)
class SweepRecord:
    """``artifacts_removed_at``: since when its files are gone; ``None`` while they have not been removed."""

    id: str
    name: str
    created_at: datetime
    ended_at: datetime | None
    state: SweepState
    owner: str
    matrix: dict[str, Any]
    timeouts: dict[str, Any]
    environment: Environment | None
    artifacts_removed_at: datetime | None = None


@dataclass(frozen=True)
class SweepSummary:
    """A sweep in a list. ``unexpected`` counts the ended cells whose verdict was not an expected one."""

    id: str
    name: str
    created_at: datetime
    ended_at: datetime | None
    state: SweepState
    cells: int
    ok: int
    unexpected: int


@dataclass(frozen=True)
class ResolvedCell:
    """What is known of a cell before it runs. ``duplicate_of``: id of the cell whose result it shares.

    ``notes``: what is to be remarked of it, whatever comes out.
    """

    audited: AuditedCell
    fingerprint: str
    environment: Environment | None
    duplicate_of: str | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class CellRecord:
    """``requested``, ``effective``: dotted settings. ``duplicate_of``: the cell whose result it shares.

    ``notes``: what is to be remarked of it, whatever comes out.

    ``environment``: where it was audited; ``None`` where it was not, or in a sweep that knew of one alone.
    """

    sweep_id: str
    id: str
    position: int
    name: str
    requested: Settings
    expect: tuple[Verdict, ...]
    checks: tuple[Check, ...]
    state: State
    effective: Settings | None
    changes: tuple[Change, ...]
    patches: dict[Patch, PatchState]
    shape: Shape | None
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    environment: Environment | None
    fingerprint: str | None
    duplicate_of: str | None
    verdict: Verdict | None
    ok: bool | None
    reasons: tuple[str, ...]
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True)
class CellSummary:
    """A cell in a list."""

    id: str
    position: int
    name: str
    state: State
    verdict: Verdict | None
    ok: bool | None
    duplicate_of: str | None
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True)
class RunSummary:
    """A run in a list: without what was asked of it and what it found out."""

    id: str
    sweep_id: str
    cell_id: str
    attempt: int
    state: State
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    failure: str | None


@dataclass(frozen=True)
class RunRecord:
    """``failure`` says why there is no evidence, or not all of it."""

    id: str
    sweep_id: str
    cell_id: str
    attempt: int
    state: State
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    spec: RunSpec
    evidence: Evidence | None
    failure: str | None


@dataclass(frozen=True)
class RunPart:
    """What a report says by the evidence of a run: ``text`` is JSON, ``None`` where it is to be made anew."""

    run_id: str
    cell_id: str
    failure: str | None
    environment: dict[str, Any] | None
    patches: dict[str, Any] | None
    text: str | None


@dataclass(frozen=True)
class ArmRecord:
    """A shared arm: one engine start whose result several cells use."""

    key: str
    role: Role
    state: ArmState
    folder: str
    report: ArmReport | None
    owner: str


RUN_LOST = "run-lost"
"""Kind of the event that a run was lost with its actor, node or controller; what is run again has another run."""


@dataclass(frozen=True)
class NewEvent:
    """Something that happened to a sweep, or within it to a cell or a run. ``at`` is Unix time."""

    sweep_id: str
    at: float
    kind: str
    cell_id: str | None = None
    run_id: str | None = None
    arm: Role | None = None
    rank: int | None = None
    data: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, event: Event, sweep_id: str, cell_id: str | None = None, run_id: str | None = None) -> NewEvent:
        """The event that a run actor sent, and whose it is."""
        return cls(sweep_id, event.at, event.kind, cell_id, run_id, event.arm, event.rank, event.data)


@dataclass(frozen=True)
class EventRecord(NewEvent):
    """``id`` grows with every event of a sweep; it is the cursor to read on from."""

    id: int = field(kw_only=True)


@dataclass(frozen=True)
class LivePhase:
    """What one rank of a running cell is doing, and since when (Unix time)."""

    cell_id: str
    arm: Role | None
    rank: int | None
    name: str
    at: float
