"""Which sweeps' artifacts have to go so that those of ended sweeps stay within a bound."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Kept:
    """Artifacts of a sweep that has ended. ``sweep_id`` sorts by time; ``size`` in bytes."""

    sweep_id: str
    size: int


@dataclass(frozen=True)
class Bound:
    """At most the artifacts of so many ended sweeps, of so many bytes together."""

    sweeps: int
    size: int


def beyond(bound: Bound, kept: Iterable[Kept]) -> list[str]:
    """The ids of the sweeps whose artifacts go, oldest first.

    The newest one goes by the number of sweeps alone: somebody has just waited for it.
    """
    newest_first = sorted(kept, key=lambda one: one.sweep_id, reverse=True)
    stay, size = 0, 0
    for place, one in enumerate(newest_first[: bound.sweeps]):
        size += one.size
        if place and size > bound.size:
            break
        stay += 1
    return [one.sweep_id for one in reversed(newest_first[stay:])]
