"""What the store takes in and gives out of the queue."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from service.domain.lifecycle import State

SHARED = "shared"
"""The queue of those who serve: whoever leads takes its jobs. A command that runs alone has one of its own."""


class JobKind(StrEnum):
    ARM = "arm"
    CELL = "cell"


@dataclass(frozen=True)
class QueueRecord:
    """``places``: plain JSON, see ``service.dispatch.work``. ``key_id``: the API key that submitted the sweep."""

    sweep_id: str
    queue: str
    priority: int
    max_parallel: int | None
    key_id: str | None
    places: dict[str, Any]


@dataclass(frozen=True)
class NewJob:
    """``cell_id``: the cell, or for a shared arm the first one that needs it. ``needs``: ids of jobs to wait for.

    ``ranks`` engine processes, on ``devices`` GPUs of a machine if there are any. ``work``: plain JSON.
    """

    id: str
    kind: JobKind
    cell_id: str
    position: int
    ranks: int
    devices: int
    work: dict[str, Any]
    needs: tuple[str, ...] = ()
    story: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobRecord:
    """A job as it is stored, see ``JobRow``."""

    id: str
    sweep_id: str
    queue: str
    kind: JobKind
    cell_id: str
    rank: int
    key_id: str | None
    state: State
    waits: int
    lost: int
    leases: int
    owner: str | None
    run_id: str | None
    ranks: int
    devices: int
    work: dict[str, Any]
    story: tuple[str, ...]


@dataclass(frozen=True)
class LeaderRecord:
    owner: str
    beat: int
