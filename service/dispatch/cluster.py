"""The Ray cluster: an existing one, or a local one that lives and dies with this process."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import ray

from service.dispatch.seat import Slots
from service.domain.spread import Machine, Spread, spread
from service.settings import Settings

logger = logging.getLogger(__name__)

LONGEST_RAY_FOLDER = 43
"""A socket's path may have 107 characters, and Ray's own part of it takes the other 64."""

RETRY_S = 2.0
WATCH_S = 1.0


@contextlib.contextmanager
def cluster(settings: Settings) -> Iterator[None]:
    """Be connected to Ray inside the block."""
    prepare()
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if settings.cluster_address is None:
        # Under the supervisor this is a folder that goes with it.
        folder = _ray_folder(tempfile.gettempdir())
        options |= {"include_dashboard": False, "_temp_dir": folder, "num_cpus": _cores()}
    else:
        options["address"] = settings.cluster_address
    ray.init(**options)
    try:
        yield
    finally:
        ray.shutdown()


def prepare() -> None:
    """Set what a Ray that this process starts takes from its environment, as far as nobody else has."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray lowers the priority of its workers, and engines inherit that: their times would depend on who else is there.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # Ray's log monitor keeps the logs of workers that are gone open, up to so many. Nobody reads what it passes on.
    os.environ.setdefault("RAY_LOG_MONITOR_MAX_OPEN_FILES", "2")


class Connection:
    """Whether the cluster is there. Asked and told from any thread. ``hopeless``: it is not, and is not tried again."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.hopeless = False
        self._there = False
        self._told: list[Callable[[], None]] = []
        self._changed = threading.Condition()

    def __call__(self) -> bool:
        return self._there

    def trouble(self) -> str | None:
        """Why no sweep can start at present; ``None`` when it can."""
        if self._there:
            return None
        if self.error is None:
            return "Ray is not there yet; sweeps that are submitted wait for it"
        return f"Ray cannot be used: {self.error}"

    def when_changed(self, tell: Callable[[], None]) -> None:
        """Call ``tell`` at every change, and now if there was one."""
        with self._changed:
            self._told.append(tell)
            known = self._there or self.error is not None
        if known:
            tell()

    def wait(self, seconds: float) -> bool:
        """Is it there, at the latest after so many seconds?"""
        with self._changed:
            return self._changed.wait_for(lambda: self._there, seconds)

    def keep(self, settings: Settings, leave: threading.Event, once: bool) -> None:
        """Be connected until ``leave`` is set. One that is lost is looked for again; ``once``: not the first one."""
        was_there = False
        while not leave.is_set():
            try:
                with cluster(settings):
                    was_there = True
                    self._change(True, None)
                    self._watch(settings, leave)
            except Exception as error:
                self.hopeless = once and not was_there
                self._change(False, error)
                if self.hopeless:
                    return
                logger.warning("the Ray cluster is not there and is tried again in %g s: %s", RETRY_S, error)
                leave.wait(RETRY_S)

    def _change(self, there: bool, error: BaseException | None) -> None:
        with self._changed:
            self._there, self.error = there, error
            self._changed.notify_all()
            told = list(self._told)
        for tell in told:
            tell()

    def _watch(self, settings: Settings, leave: threading.Event) -> None:
        """Return when ``leave`` is set, or raise when Ray has gone on this machine: nothing can be started then."""
        mine = ray.get_runtime_context().get_node_id()
        while not leave.wait(WATCH_S):
            here = _raylets() if settings.cluster_address is None else mine in _alive()
            if not here:
                error = ConnectionError("the raylet by which this controller is connected to Ray is gone")
                # Told while it is still connected: who follows a run stops first.
                self._change(False, error)
                raise error


def _raylets() -> list[psutil.Process]:
    """Those of this process that run. One that was killed is there, as a zombie."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.name() == "raylet" and child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
    return found


def _alive() -> set[str]:
    found: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return {node["NodeID"] for node in found if node["Alive"]}


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
    """What ``ranks`` ranks occupy on a cluster whose engine environment sees ``devices`` GPUs.

    Where not even several machines have room, it is one that may yet be added, or on CPU one whose ranks share cores.
    """
    found = machines()
    wanted = spread(ranks, found, on_gpus=devices > 0) or Spread(1, ranks)
    if devices:
        return Slots(cpus=1, gpus=wanted.ranks, machines=wanted.machines)
    most = max((machine.cpus for machine in found), default=1) or 1
    return Slots(cpus=min(wanted.ranks, most), gpus=0, machines=wanted.machines)


def machines() -> list[Machine]:
    """What each machine of the cluster has in all, those that are gone left out."""
    found: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    alive = [node["Resources"] for node in found if node["Alive"]]
    return [Machine(int(resources.get("CPU", 0)), int(resources.get("GPU", 0))) for resources in alive]
