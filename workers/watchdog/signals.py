"""A process's own stacks, asked for by signal: the second way, where it may not be looked at from outside.

A process that called ``register`` writes the stacks of its threads into memory of its own that others of the same user
can read. Nothing of it lies on disk.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
import time
from pathlib import Path

from workers.watchdog.frames import Frame, Thread

SIGNAL = signal.SIGUSR1
NAME = "shardproof-stacks"
PATIENCE_S = 2.0

_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$')
_THREAD = re.compile(r"^(?:Current thread|Thread) (?P<id>0x[0-9a-f]+)")

_memory: int | None = None


def register() -> None:
    """Answer to the signal from now on. The handler is C code: it works while Python code does not get its turn."""
    global _memory
    if _memory is None:
        _memory = os.memfd_create(NAME)
        faulthandler.register(SIGNAL, file=_memory, all_threads=True)


def ask(pid: int) -> tuple[Thread, ...]:
    """The stacks of ``pid``, or nothing when it does not answer. A process that would die of the signal is not asked.

    Processes that share their memory by a fork must be asked one after the other.
    """
    with contextlib.suppress(OSError):
        memory = _memory_of(pid)
        if memory is not None and _catches(pid):
            before = memory.stat().st_size
            os.kill(pid, SIGNAL)
            return parse(_what_comes(memory, before))
    return ()


def _memory_of(pid: int) -> Path | None:
    descriptors = Path(f"/proc/{pid}/fd").iterdir()
    return next((path for path in descriptors if f"memfd:{NAME}" in os.readlink(path)), None)


def _catches(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)", status, re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (SIGNAL - 1) & 1)


def _what_comes(memory: Path, before: int) -> str:
    """What is written after ``before``, once it has stopped growing or patience is at its end."""
    deadline = time.monotonic() + PATIENCE_S
    size = before
    while time.monotonic() < deadline:
        time.sleep(0.05)
        grown = memory.stat().st_size
        if grown == size > before:
            break
        size = grown
    with memory.open("rb") as file:
        file.seek(before)
        return file.read().decode(errors="replace")


def parse(text: str) -> tuple[Thread, ...]:
    """The threads in a text of ``faulthandler``. It lists the newest first, so the main thread comes last."""
    threads: list[tuple[str, list[Frame]]] = []
    for line in text.splitlines():
        if found := _THREAD.match(line):
            threads.append((found["id"], []))
        elif threads and (found := _FRAME.match(line)):
            threads[-1][1].append(Frame(found["function"], found["file"], int(found["line"])))
    last = len(threads) - 1
    return tuple(Thread(name, index == last, tuple(frames)) for index, (name, frames) in enumerate(threads))
