"""The installed command, run as a user runs it, and what it leaves on the machine."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

COMMAND = Path(sys.executable).with_name("shardproof")


@dataclass(frozen=True)
class Finished:
    """A run that has ended. ``report`` is ``None`` when none was written."""

    status: int
    printed: str
    report: dict[str, Any] | None
    home: Path

    def cell(self, name: str) -> dict[str, Any]:
        assert self.report is not None, self.printed
        return next(cell for cell in self.report["cells"] if cell["name"] == name)

    def arm_folder(self, name: str, role: str) -> Path:
        """The folder of an arm that ran in the run of cell ``name``."""
        assert self.report is not None
        cell = self.cell(name)
        (run,) = (self.home / "artifacts" / self.report["sweep"]["id"] / "cells" / cell["id"]).iterdir()
        return run / role


SCRATCH = Path(tempfile.mkdtemp(prefix="sp-"))
"""Temporary folder of the commands started here. Short: Ray puts sockets below it."""
ROOMY = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TOP_PAD_": str(64 << 20)}
"""For engines that read beyond their buffers, as one without its guard does.

What they read there is their own heap. With the C library's own settings it is that or nothing, and a memory fault
ends the engine in one run of many.
"""
CACHE = Path(tempfile.mkdtemp(prefix="sp-cache-"))
"""Takes the place of ``cache`` in the home folders of runs that do not care whether it is new."""
for _folder in (SCRATCH, CACHE):
    atexit.register(shutil.rmtree, _folder, ignore_errors=True)


def environment(home: Path) -> dict[str, str]:
    return os.environ | ROOMY | {"SHARDPROOF_HOME": str(home), "TMPDIR": str(SCRATCH)}


def start(home: Path, *arguments: str | Path) -> subprocess.Popen[str]:
    """Start ``shardproof`` and return at once; standard output and error are one pipe."""
    return subprocess.Popen(
        [COMMAND, *map(str, arguments)],
        env=environment(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str], home: Path, report: Path) -> Finished:
    printed, _ = process.communicate(timeout=1500)
    content = json.loads(report.read_text()) if report.exists() else None
    return Finished(process.returncode, printed, content, home)


def run(home: Path, matrix: Path, *options: str) -> Finished:
    """``shardproof run``, to its end. What is learnt of vLLM and of this machine is learnt once for all homes."""
    report = home / f"{matrix.stem}-report.json"
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "cache").exists():
        (home / "cache").symlink_to(CACHE, target_is_directory=True)
    return finish(start(home, "run", matrix, "--json", report, *options), home, report)


def engine_processes() -> list[psutil.Process]:
    """Every process of an engine, an actor or a supervisor on this machine."""
    found = []
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if any(mark in line for mark in ("workers.engine", "workers.supervisor", "VLLM::", "ray::", "raylet")):
            found.append(process)
    return found


def own_processes() -> Iterator[psutil.Process]:
    """Every process below a command that was started here, whatever it is called and whoever is its parent now."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("TMPDIR", "").startswith(str(SCRATCH)):
                yield process


def segments() -> frozenset[Path]:
    """Shared memory but for what somebody else's process has mapped."""
    ours = {process.pid for process in own_processes()}
    mapped = ""
    for process in psutil.process_iter():
        with contextlib.suppress(OSError):
            mapped += "" if process.pid in ours else Path(f"/proc/{process.pid}/maps").read_text()
    return frozenset(path for path in Path("/dev/shm").iterdir() if str(path) not in mapped)


@dataclass(frozen=True)
class Leftovers:
    """What of an engine can stay behind outside of the home folder."""

    processes: frozenset[int]
    files: frozenset[Path]

    @classmethod
    def now(cls) -> Leftovers:
        files = frozenset({*segments(), *SCRATCH.iterdir()})
        return cls(frozenset(process.pid for process in own_processes()), files)
