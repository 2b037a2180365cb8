"""The Ray cluster: an existing one, or a local one that lives and dies with this process."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from service.settings import Settings
from workers.actor import RunActor
from workers.protocol import RunSpec

LONGEST_RAY_FOLDER = 43
"""A socket's path may have 107 characters, and Ray's own part of it takes the other 64."""


class RunLost(RuntimeError):
    """The run's actor or its node is gone: infrastructure, not the engine."""


@dataclass(frozen=True)
class Slots:
    """What a run occupies. On CPU ranks may share cores, so a run never asks for more than the cluster has."""

    cpus: int
    gpus: int

    @property
    def bundle(self) -> dict[str, float]:
        return {"CPU": self.cpus, "GPU": self.gpus} if self.gpus else {"CPU": self.cpus}


@contextlib.contextmanager
def cluster(settings: Settings) -> Iterator[None]:
    """Be connected to Ray inside the block."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray lowers the priority of its workers, and engines inherit that: their times would depend on who else is there.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # Ray's log monitor keeps the logs of workers that are gone open, up to so many. Nobody reads what it passes on.
    os.environ.setdefault("RAY_LOG_MONITOR_MAX_OPEN_FILES", "2")
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if settings.ray_address is None:
        # Under the supervisor this is a folder that goes with it.
        folder = _ray_folder(tempfile.gettempdir())
        options |= {"include_dashboard": False, "_temp_dir": folder, "num_cpus": _cores()}
    else:
        options["address"] = settings.ray_address
    ray.init(**options)
    try:
        yield
    finally:
        ray.shutdown()


def _ray_folder(temporary: str) -> str:
    folder = os.path.join(temporary, "r")
    if len(folder) > LONGEST_RAY_FOLDER:
        raise OSError(
            f"the temporary folder {temporary} is too long for Ray's sockets by {len(folder) - LONGEST_RAY_FOLDER} "
            "characters; set TMPDIR to a shorter one"
        )
    return folder


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def slots(ranks: int, devices: int) -> Slots:
    """What ``ranks`` ranks occupy on a cluster whose engine environment sees ``devices`` GPUs."""
    if devices:
        return Slots(cpus=1, gpus=ranks)
    return Slots(cpus=min(ranks, _cluster_cpus()), gpus=0)


def _cluster_cpus() -> int:
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return int(resources.get("CPU", 1))


def execute(spec: RunSpec, needed: Slots, settings: Settings) -> Iterator[dict[str, Any]]:
    """Run ``spec`` in an actor of its own and pass on its events. Closing the iterator kills the actor.

    Raises:
        RunLost: when the actor dies.
    """
    group = placement_group([needed.bundle], strategy="STRICT_PACK")
    actor: Any = None
    try:
        ray.get(group.ready())
        actor = (
            ray.remote(RunActor)
            .options(
                num_cpus=needed.cpus,
                num_gpus=needed.gpus,
                max_restarts=0,
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0),
            )
            .remote(spec.model_dump_json(), str(settings.python))
        )
        for reference in actor.run.options(num_returns="streaming").remote():
            yield ray.get(reference)
    except ray.exceptions.RayActorError as error:
        raise RunLost(f"the actor of run {spec.run_id} is gone: {_brief(error)}") from error
    finally:
        if actor is not None:
            ray.kill(actor)
        remove_placement_group(group)


def _brief(error: Exception) -> str:
    """The first lines of Ray's story."""
    return " ".join(line.strip() for line in str(error).splitlines()[:6] if line.strip())
