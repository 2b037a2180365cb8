"""The processes of one fault test, wherever they hang in the process tree: those whose temporary folder is its own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import psutil


def processes(scratch: Path) -> Iterator[tuple[psutil.Process, str]]:
    """All that run with ``scratch``, or a folder below it, as temporary folder, with their command lines.

    Whoever is their parent now: what a killed parent left behind is found too. This process is none of them.
    """
    me = psutil.Process().pid
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != me and is_below(process.environ().get("TMPDIR", ""), scratch):
                line = " ".join(process.cmdline())
                if process.status() != psutil.STATUS_ZOMBIE:
                    yield process, line


def is_below(folder: str, scratch: Path) -> bool:
    return folder == str(scratch) or folder.startswith(f"{scratch}/")


def left(scratch: Path, patience_s: float) -> list[str]:
    """Command lines of what still runs when nothing should; empty as soon as nothing does."""
    deadline = time.monotonic() + patience_s
    while lines := [line for _, line in processes(scratch)]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.2)
    return lines
