"""One seat: the slots of a run in the cluster, and the actor that has them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from workers.actor import RunActor
from workers.machines.follower import FollowerActor

BACK_PRESSURE = 512
"""Events that an actor may be ahead of the controller."""

CALLS_AT_ONCE = 4
"""Of an actor that follows: it runs a portion of an engine, and answers what its leader asks meanwhile."""

ANSWER_S = 10.0
"""How long an actor that was not used has to say that it is still there."""


@dataclass(frozen=True)
class Slots:
    """What a run occupies on each of its ``machines``.

    On CPU ranks may share cores, so a run never asks for more than the cluster has.
    """

    cpus: int
    gpus: int
    machines: int = 1

    @property
    def bundle(self) -> dict[str, float]:
        return {"CPU": self.cpus, "GPU": self.gpus} if self.gpus else {"CPU": self.cpus}


class Seat:
    """An actor in a placement group that has its slots. ``runs``: how many it has begun.

    On several machines there is an actor on each: the first one leads, the others follow.
    """

    def __init__(self, size: Slots, group: PlacementGroup) -> None:
        self.size = size
        self.runs = 0
        self.unused_since = 0.0
        self._group = group
        self._leader, *self._followers = [self._actor(number) for number in range(size.machines)]

    def _actor(self, number: int) -> Any:
        """``number``: of the part of the group that it is put into, and of the machine with it."""
        strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=number)
        wanted: dict[str, Any] = {"num_cpus": self.size.cpus, "num_gpus": self.size.gpus, "max_restarts": 0}
        if number > 0:
            wanted["max_concurrency"] = CALLS_AT_ONCE
        return _actor_class(number == 0).options(scheduling_strategy=strategy, **wanted).remote()

    def run(self, spec: str, python: str) -> Iterator[dict[str, Any]]:
        """Events of a run; the arguments are those of ``RunActor.run``."""
        self.runs += 1
        events = self._leader.run.options(num_returns="streaming", _generator_backpressure_num_objects=BACK_PRESSURE)
        for reference in events.remote(spec, python, self._followers):
            yield ray.get(reference)

    def answers(self) -> bool:
        """Are its actors still there? One that has served nobody yet tells by its first event."""
        if self.runs == 0:
            return True
        try:
            ray.get([actor.answer.remote() for actor in (self._leader, *self._followers)], timeout=ANSWER_S)
        except ray.exceptions.RayError:
            return False
        return True

    def kill(self) -> None:
        """Kill the actors; their engines die with them. A cluster that is gone has killed them already."""
        if ray.is_initialized():
            for actor in (self._leader, *self._followers):
                with contextlib.suppress(ray.exceptions.RayError):
                    ray.kill(actor)

    def give_up(self) -> None:
        self.kill()
        remove(self._group)


@functools.cache
def _actor_class(leads: bool) -> Any:
    if leads:
        return ray.remote(RunActor)
    return ray.remote(FollowerActor)


def reserve(size: Slots) -> PlacementGroup:
    """Ask the cluster for the slots of a run: all on one machine, or a part on each of several.

    Raises:
        RayError: when the cluster is gone.
    """
    strategy = "STRICT_PACK" if size.machines == 1 else "STRICT_SPREAD"
    group: PlacementGroup = placement_group([size.bundle] * size.machines, strategy=strategy)
    return group


def remove(group: PlacementGroup) -> None:
    if ray.is_initialized():
        with contextlib.suppress(ray.exceptions.RayError):
            remove_placement_group(group)
