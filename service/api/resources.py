"""What the lists and single resources of the API look like."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pydantic import BaseModel

from service.run_files import Artifact
from service.store.records import CellSummary, RunSummary
from workers.protocol import Outcome, Residual, Role


class CellPage(BaseModel):
    """``next`` is the value of ``after`` for the page that follows, absent on the last one."""

    cells: list[CellSummary]
    next: str | None


class RunPage(BaseModel):
    """``next`` is the value of ``after`` for the page that follows, absent on the last one."""

    runs: list[RunSummary]
    next: str | None


class RunArm(BaseModel):
    """An arm of a run. ``outcome`` and ``wall_s`` are absent until the run has ended with evidence."""

    role: Role
    repeat: int
    outcome: Outcome | None
    wall_s: float | None
    failure: str | None


@dataclass(frozen=True)
class Run(RunSummary):
    """One attempt at a cell with its arms, in the order they are started."""

    arms: list[RunArm]


class PhaseTime(BaseModel):
    """``s`` may be in several pieces; ``begin``: where the first is, in seconds since the arm was started."""

    name: str
    s: float
    begin: float | None


class RankPhases(BaseModel):
    """``unaccounted_s`` is what no phase explains; together they are ``total_s``."""

    rank: int
    total_s: float
    phases: list[PhaseTime]
    unaccounted_s: float


class StartPhases(BaseModel):
    """One timed start."""

    arm: Role
    repeat: int
    total_s: float
    ranks: list[RankPhases]


class RunPhases(BaseModel):
    """Empty until the run has ended, and where it timed nothing."""

    starts: list[StartPhases]


class RunResiduals(BaseModel):
    """What was compared with what; empty until the run has ended, and where nothing was."""

    comparisons: list[Residual]


class ArtifactPage(BaseModel):
    """``removed_at``: since when the files are gone. ``next`` as in other lists."""

    artifacts: list[Artifact]
    next: str | None
    removed_at: datetime | None


class Log(BaseModel):
    """What an arm's engine wrote; ``arm`` is the name of its folder."""

    arm: str
    bytes: int
    modified_at: datetime | None


class Logs(BaseModel):
    logs: list[Log]


class EngineEnvironment(BaseModel):
    """An environment that was built on the controller's machine. ``ready``: built to its end."""

    address: str
    requirements: list[str]
    vllm: str | None
    torch: str | None
    python: str | None
    ready: bool


class EngineEnvironments(BaseModel):
    """``named``: what a matrix may name without defining it; ``default`` is always there."""

    named: list[str]
    built: list[EngineEnvironment]


class Node(BaseModel):
    """A machine of the Ray cluster; ``resources`` are what it has in all, by Ray's names."""

    id: str
    alive: bool
    host: str
    resources: dict[str, float]


class Nodes(BaseModel):
    """``available``: what nobody holds at the moment, over all nodes."""

    nodes: list[Node]
    available: dict[str, float]
