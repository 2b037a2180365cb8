"""One seat: the slots of a run in the cluster, and the actor that has them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from workers.actor import RunActor

BACK_PRESSURE = 512
"""Events that an actor may be ahead of the controller."""

ANSWER_S = 10.0
"""How long an actor that was not used has to say that it is still there."""


@dataclass(frozen=True)
class Slots:
    """What a run occupies. On CPU ranks may share cores, so a run never asks for more than the cluster has."""

    cpus: int
    gpus: int

    @property
    def bundle(self) -> dict[str, float]:
        return {"CPU": self.cpus, "GPU": self.gpus} if self.gpus else {"CPU": self.cpus}


class Seat:
    """An actor in a placement group that has its slots. ``runs``: how many it has begun."""

    def __init__(self, size: Slots, group: PlacementGroup) -> None:
        self.size = size
        self.runs = 0
        self.unused_since = 0.0
        self._group = group
        self._actor = (
            _actor_class()
            .options(
                num_cpus=size.cpus,
                num_gpus=size.gpus,
                max_restarts=0,
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0),
            )
            .remote()
        )

    def run(self, spec: str, python: str) -> Iterator[dict[str, Any]]:
        """Events of a run; the arguments are those of ``RunActor.run``."""
        self.runs += 1
        events = self._actor.run.options(num_returns="streaming", _generator_backpressure_num_objects=BACK_PRESSURE)
        for reference in events.remote(spec, python):
            yield ray.get(reference)

    def answers(self) -> bool:
        """Is its actor still there? One that has served nobody yet tells by its first event."""
        if self.runs == 0:
            return True
        try:
            ray.get(self._actor.answer.remote(), timeout=ANSWER_S)
        except ray.exceptions.RayError:
            return False
        return True

    def kill(self) -> None:
        """Kill the actor; its engines die with it. A cluster that is gone has killed it already."""
        if ray.is_initialized():
            with contextlib.suppress(ray.exceptions.RayError):
                ray.kill(self._actor)

    def give_up(self) -> None:
        self.kill()
        remove(self._group)


@functools.cache
def _actor_class() -> Any:
    return ray.remote(RunActor)


def remove(group: PlacementGroup) -> None:
    if ray.is_initialized():
        with contextlib.suppress(ray.exceptions.RayError):
            remove_placement_group(group)
