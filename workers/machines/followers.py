"""The other machines of a run, as the actor asks them that leads; and what of an engine each of them has."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

import ray

from workers.machines.follower import BOOT_ID
from workers.protocol import ArmSpec, Portion

PINGS = 5
ANSWER_S = 30.0
START_S = 180.0
"""For the first answer: its process has to be started."""

LONGER_S = 300.0
"""The leader says when time is up. A portion that nobody has ended by then ends by itself."""


class MachineLost(RuntimeError):
    """Another machine of the run is gone, or its actor: infrastructure, not the engine."""


class Follower:
    """``number``: of the machine, from 1; ``actor``: a handle of its ``FollowerActor``.

    Raises:
        MachineLost: if it does not answer; so do all methods.
    """

    def __init__(self, actor: Any, number: int) -> None:
        self.actor = actor
        self.number = number
        self.host, self.node, self._boot = self.ask(actor.machine.remote(), START_S)

    def ask(self, reference: Any, timeout_s: float = ANSWER_S) -> Any:
        """What it answers to a call."""
        try:
            return ray.get(reference, timeout=timeout_s)
        except ray.exceptions.RayError as error:
            raise self.lost(error) from error

    def lost(self, error: Exception) -> MachineLost:
        """What ``error`` means for the run."""
        brief = " ".join(line.strip() for line in str(error).splitlines()[:6] if line.strip())
        return MachineLost(f"machine {self.number} of the run does not answer: {type(error).__name__}: {brief}")

    def forget(self, cache_root: str) -> None:
        """Have it remove what it keeps in place of the leader's ``cache_root``."""
        self.ask(self.actor.forget.remote(own_cache_root(cache_root, self.number)))

    def behind(self) -> float:
        """By how many seconds its monotonic clock is behind that of this machine; 0 where they are one machine."""
        if self._boot == BOOT_ID.read_text().strip():
            return 0.0
        return min(self._ping() for _ in range(PINGS))[1]

    def _ping(self) -> tuple[float, float]:
        """How long the answer took, and what it says: as far as anybody knows the clock was read in the middle."""
        before = time.monotonic()
        there: float = self.ask(self.actor.clock.remote())
        after = time.monotonic()
        return after - before, (before + after) / 2 - there


def meet(count: int) -> list[Portion]:
    """The portions of an engine on ``count`` machines. They meet at a port of this one that nobody has just now."""
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    return [Portion(number=number, count=count, address=address, port=port) for number in range(count)]


def own_cache_root(cache_root: str, number: int) -> str:
    """What machine ``number`` has in place of ``cache_root``."""
    return f"{cache_root}-machine-{number}"


def portion_of(spec: ArmSpec, portion: Portion) -> ArmSpec:
    """``spec`` for the machine that has ``portion``. One that does not lead has folders of its own.

    They lie beside the leader's: both may be one machine, or have one disk.
    """
    if portion.leads:
        return spec.model_copy(update={"portion": portion})
    own = {
        "portion": portion,
        "folder": str(Path(spec.folder) / f"machine-{portion.number}"),
        "cache_root": own_cache_root(spec.cache_root, portion.number),
        "timeout_s": spec.timeout_s + LONGER_S,
        "phase_timeout_s": None,
        "silence_s": None,
    }
    return spec.model_copy(update=own)
