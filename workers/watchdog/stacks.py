"""The Python stack of every process of a tree, taken from outside.

py-spy reads them without the process's help, so a process that hangs in C code has one too. It needs the right to trace
the process. Where it has none, an engine process is asked by signal, see ``workers.watchdog.signals``.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from workers.watchdog import signals
from workers.watchdog.frames import Frame, Stack, Thread

TIMEOUT_S = 20.0
"""For all processes together."""


@dataclass(frozen=True)
class _Process:
    pid: int
    parent: int
    command: str
    is_python: bool


def take(root: int, timeout_s: float = TIMEOUT_S) -> list[Stack]:
    """The stacks of all descendants of process ``root``, by process id. They stand still while they are looked at.

    A process whose stack cannot be had, or that is no Python process, is there with the reason in its ``problem``.
    """
    deadline = time.monotonic() + timeout_s
    processes = _descendants(root)
    spies = {process.pid: _spy(process.pid) for process in processes if process.is_python}
    found = []
    for process in processes:
        threads, problem = _answer(spies.get(process.pid), process, deadline)
        found.append(Stack(process.pid, process.parent, process.command, threads, problem))
    return found


def _descendants(root: int) -> list[_Process]:
    with contextlib.suppress(psutil.Error):
        children = psutil.Process(root).children(recursive=True)
        return sorted(_described(children), key=lambda process: process.pid)
    return []


def _described(children: Iterable[psutil.Process]) -> Iterable[_Process]:
    for child in children:
        # It may go at any moment.
        with contextlib.suppress(psutil.Error):
            if child.status() != psutil.STATUS_ZOMBIE:
                yield _Process(child.pid, child.ppid(), " ".join(child.cmdline()), _is_python(child))


def _is_python(process: psutil.Process) -> bool:
    if "python" in Path(process.exe()).name:
        return True
    with contextlib.suppress(OSError):
        return "/libpython" in Path(f"/proc/{process.pid}/maps").read_text()
    return False


def spy() -> str | None:
    """Where py-spy is, beside this interpreter first."""
    return shutil.which("py-spy", path=sysconfig.get_path("scripts")) or shutil.which("py-spy")


def _spy(pid: int) -> subprocess.Popen[bytes] | None:
    program = spy()
    if program is None:
        return None
    command = [program, "dump", "--json", "--full-filenames", "--pid", str(pid)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _answer(
    spy: subprocess.Popen[bytes] | None, process: _Process, deadline: float
) -> tuple[tuple[Thread, ...], str | None]:
    if not process.is_python:
        return (), "not a Python process"
    threads, problem = _spied(spy, deadline)
    if threads:
        return threads, None
    told = signals.ask(process.pid)
    return told, None if told else problem


def _spied(spy: subprocess.Popen[bytes] | None, deadline: float) -> tuple[tuple[Thread, ...], str | None]:
    if spy is None:
        return (), "py-spy is not installed"
    try:
        output, errors = spy.communicate(timeout=max(deadline - time.monotonic(), 0.1))
    except subprocess.TimeoutExpired:
        spy.kill()
        spy.communicate()
        return (), "py-spy gave no answer in time"
    try:
        return tuple(_thread(thread) for thread in json.loads(output)), None
    except (ValueError, KeyError, TypeError):
        said = errors.decode(errors="replace").split("\n", 1)[0]
        return (), f"py-spy: {said or f'exit status {spy.returncode}'}"


def _thread(told: dict[str, Any]) -> Thread:
    frames = tuple(Frame(frame["name"], frame["filename"], frame["line"]) for frame in told["frames"])
    main = told["os_thread_id"] == told["pid"]
    return Thread(told["thread_name"] or str(told["os_thread_id"]), main, frames)
