"""``shardproof serve``: one controller, one sweep after the other, and what each of them leaves on the machine."""

from __future__ import annotations

import contextlib
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from e2e.command import CACHE, COMMAND, SCRATCH, environment, own_processes, segments

PATIENCE_S = 60.0
"""Ray ends the workers of a run a little after it."""

BREATHING = 2
"""Descriptors that a process opens now and then and closes again. What leaks, leaks with every run."""

RAY_LOGS = "logs"
"""Folder of Ray's session: each of its workers leaves some small files there until Ray ends."""


@dataclass(frozen=True)
class Left:
    """What there is between two sweeps. ``descriptors`` and ``lines`` (command lines): of each process, by its id.

    ``segments``: in shared memory; ``folders``: below the temporary folder; ``caches``: compile caches and pipes in the
    home folder.
    """

    descriptors: dict[int, int]
    lines: dict[int, str]
    segments: frozenset[Path]
    folders: frozenset[Path]
    caches: frozenset[Path]

    @classmethod
    def now(cls, home: Path) -> Left:
        descriptors, lines = {}, {}
        for process in own_processes():
            with contextlib.suppress(psutil.Error):
                lines[process.pid] = " ".join(process.cmdline())
                descriptors[process.pid] = process.num_fds()
        return cls(
            descriptors,
            lines,
            segments(),
            frozenset(path for path in SCRATCH.rglob("*") if path.is_dir() and RAY_LOGS not in path.parts),
            frozenset(not_to_stay(home)),
        )

    def beyond(self, before: Left) -> dict[str, Any]:
        """What there is more of than ``before``: processes, descriptors of those that stayed, and names."""
        stayed = self.descriptors.keys() & before.descriptors.keys()
        opened = {self.lines[pid]: self.descriptors[pid] - before.descriptors[pid] for pid in stayed}
        more = {
            "processes": list(self.lines.values()) if len(self.lines) > len(before.lines) else [],
            "descriptors": {line: more for line, more in opened.items() if more > BREATHING},
            "segments": self.segments - before.segments,
            "folders": self.folders - before.folders,
            "caches": self.caches - before.caches,
        }
        return {what: found for what, found in more.items() if found}


def not_to_stay(home: Path) -> Iterator[Path]:
    """Compile caches and pipes among the files of sweeps."""
    for path in (home / "artifacts").rglob("*"):
        if stat.S_ISFIFO(path.lstat().st_mode) or path.name == "torch_compile_cache" or path.name.endswith("cache"):
            yield path


@dataclass
class Served:
    """``left``: what was there after each sweep."""

    home: Path
    url: str
    left: list[Left] = field(default_factory=list)

    def sweep(self, matrix: str) -> dict[str, Any]:
        """Submit ``matrix``, wait for its end and until what it used is gone; its report."""
        answer = httpx.post(f"{self.url}/v1/sweeps", content=matrix, headers={"content-type": "application/yaml"},
                            timeout=300)  # fmt: skip
        assert answer.status_code == 201, answer.text
        sweep_id = answer.json()["id"]
        while self.report(sweep_id)["sweep"]["ended_at"] is None:
            time.sleep(0.5)
        self.left.append(self._settled())
        return self.report(sweep_id)

    def report(self, sweep_id: str) -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(f"{self.url}/v1/sweeps/{sweep_id}/report", timeout=60).json()
        return found

    def _settled(self) -> Left:
        """As soon as there is no more than after the first sweep, or when patience is at its end."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            now = Left.now(self.home)
            quiet = not now.beyond(self.left[0]) if self.left else not _engines(now)
            if quiet or time.monotonic() > deadline:
                return now
            time.sleep(0.5)


def _engines(left: Left) -> list[str]:
    """Command lines of actors, engines and their ranks."""
    return [
        line for line in left.lines.values() if any(mark in line for mark in ("RunActor", "VLLM::", "workers.engine"))
    ]


@contextlib.contextmanager
def serving(home: Path, **settings: str) -> Iterator[Served]:
    """A served controller on a free port, ended at the end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "cache").exists():
        (home / "cache").symlink_to(CACHE, target_is_directory=True)
    log = home / "serve.log"
    variables = environment(home) | settings | {"SHARDPROOF_PORT": str(port)}
    with log.open("w") as output:
        command = subprocess.Popen(
            [COMMAND, "serve"], env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{url}/healthz", timeout=5).is_success:
                    break
            assert command.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield Served(home, url)
    finally:
        command.terminate()
        command.wait(timeout=60)
