"""The actor that follows: it runs portions of engines on its machine for the actor that leads a run on another one.

What it has to tell it yields as plain dictionaries, by the kind of ``Tell``. Its leader ends a portion; that actor's
own end ends it too, with the run's seat.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Any

import ray

from workers import cache_root
from workers.arms import Arm
from workers.artifacts import plain_files
from workers.cache_keys import key_files
from workers.environments.failure import EnvironmentFailure
from workers.environments.provide import provided
from workers.protocol import ArmSpec, EnvironmentSpec, Failure
from workers.start_times import artifact_bytes
from workers.watchdog.stacks import take

CHUNK_BYTES = 8 << 20
"""A file is told in pieces of this size: a rank's taps may fill a gigabyte."""

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
OWN = ("spec.json", "events")
"""Files in a portion's folder that are of no use elsewhere."""

Told = dict[str, Any]


class Tell(StrEnum):
    """``EVENT``: ``event`` of a process. ``ENDED``: it broke off by itself, ``at`` and of which ``failure``.

    ``FILE``: ``data``, the next bytes of the file ``name`` in the arm's folder, or with ``cache`` in its cache root.
    ``SIZES``: ``sizes`` of what its ranks keep compiled, a list of rank (or ``None``) and bytes.
    """

    EVENT = "event"
    ENDED = "ended"
    FILE = "file"
    SIZES = "sizes"


class FollowerActor:
    """Runs one portion at a time. :meth:`follow` does not return before its end; the rest is answered meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arm: Arm | None = None
        self._asked_to_end: dict[str, float] = {}

    def machine(self) -> tuple[str, str, str]:
        """What this machine calls itself, what Ray calls it, and which of its boots this is."""
        return socket.gethostname(), ray.get_runtime_context().get_node_id(), BOOT_ID.read_text().strip()

    def clock(self) -> float:
        """Seconds of this machine's monotonic clock."""
        return time.monotonic()

    def answer(self) -> None:
        """It is there."""

    def follow(self, portion: str, ranks: int, python: str, environment: str | None) -> Iterator[Told]:
        """Run a portion to its end, and tell all that is known of it. A Ray streaming generator.

        Args:
            portion: the ``ArmSpec``, as JSON.
            ranks: how many of them run here.
            python: interpreter of the default engine environment.
            environment: another ``EnvironmentSpec`` that is wanted in its place, as JSON.
        """
        spec = ArmSpec.model_validate_json(portion)
        wanted = None if environment is None else EnvironmentSpec.model_validate_json(environment)
        with contextlib.ExitStack() as held:
            try:
                python = python if wanted is None else held.enter_context(provided(wanted, python)).python
                trouble = cache_root.trouble(spec.cache_root)
            except EnvironmentFailure as error:
                trouble = str(error)
            if trouble is None:
                yield from self._run(Arm(spec, ranks, python), spec)
            else:
                failure = Failure(phase="launch", rank=None, message=trouble, log_tail=[])
                yield {"kind": Tell.ENDED, "at": time.monotonic(), "failure": failure.model_dump(mode="json")}
        yield {"kind": Tell.SIZES, "sizes": list(artifact_bytes(Path(spec.cache_root)).items())}
        yield from _files(Path(spec.folder), Path(spec.cache_root))
        shutil.rmtree(spec.folder, ignore_errors=True)
        self._asked_to_end.pop(spec.folder, None)

    def _run(self, arm: Arm, spec: ArmSpec) -> Iterator[Told]:
        with arm:
            with self._lock:
                self._arm = arm
                unwanted = spec.folder in self._asked_to_end
            if unwanted:
                arm.cut()
            for event in arm.follow():
                yield {"kind": Tell.EVENT, "event": event}
            with self._lock:
                self._arm = None
        asked = self._asked_to_end.get(spec.folder)
        broke_off = arm.end if arm.broke_off is None else arm.broke_off
        failure = arm.report().failure
        if failure is not None and (asked is None or broke_off < asked):
            yield {"kind": Tell.ENDED, "at": broke_off, "failure": failure.model_dump(mode="json")}

    def end(self, folder: str) -> None:
        """The portion whose folder that is has served, whether it has begun or not."""
        with self._lock:
            self._asked_to_end[folder] = time.monotonic()
            if self._arm is not None and self._arm.spec.folder == folder:
                self._arm.cut()

    def stacks(self) -> list[dict[str, Any]]:
        """Those of all processes of the portion that runs."""
        with self._lock:
            arm = self._arm
        return [] if arm is None else [asdict(stack) for stack in take(arm.supervisor)]

    def forget(self, cache_root: str) -> None:
        """Remove a cache root that serves no more."""
        shutil.rmtree(cache_root, ignore_errors=True)


def _files(folder: Path, cache: Path) -> Iterator[Told]:
    """What the leader is to have: all in ``folder``, and the keys of what was compiled."""
    named = [(path, path.relative_to(folder), False) for path in plain_files(folder)]
    named += [(path, path.relative_to(cache), True) for path in key_files(cache)]
    for path, name, of_cache in named:
        if name.as_posix() in OWN:
            continue
        for data in _pieces(path):
            yield {"kind": Tell.FILE, "name": name.as_posix(), "cache": of_cache, "data": data}


def _pieces(path: Path) -> Iterator[bytes]:
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        yield file.read(CHUNK_BYTES)
        while os.fstat(file.fileno()).st_size > file.tell() and (data := file.read(CHUNK_BYTES)):
            yield data
