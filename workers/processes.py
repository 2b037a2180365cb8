"""End processes, all of them, and only our own; and take away what they leave."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from workers.parent import PR_SET_PDEATHSIG as PR_SET_PDEATHSIG
from workers.parent import die_with_parent as die_with_parent

PR_SET_CHILD_SUBREAPER = 36

SHARED_MEMORY = Path("/dev/shm")
SCRATCH = "shpf-"
"""Prefix of scratch folders. Short: the sockets below may have 107 characters in all."""
SEGMENTS = "shared-memory"
"""File in a scratch folder with the name prefixes of segments that C++ code made and nobody tracks."""


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent dies, so that none is lost sight of. Linux only."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_descendants(grace_s: float = 2.0) -> None:
    """Kill every descendant of this process, then unlink the shared memory they had mapped.

    Python's resource trackers get ``grace_s`` to clean up and end by themselves first.
    """
    deadline = time.monotonic() + grace_s
    mapped: set[Path] = set()
    while alive := [process for process in psutil.Process().children(recursive=True) if _runs(process.pid)]:
        spared = time.monotonic() < deadline
        # Looked at before any is killed: one that dies with its parent would be gone when its turn comes.
        mapped = mapped.union(*map(shared_memory, alive))
        for process in alive:
            if not (spared and _is_resource_tracker(process)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        _reap()
        time.sleep(0.02)
    _reap()
    for path in mapped:
        path.unlink(missing_ok=True)


def _runs(pid: int) -> bool:
    """It may go, and be reaped by its own parent, at any moment. One that nobody reaps does not run."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


def _is_resource_tracker(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return any("resource_tracker" in part for part in process.cmdline())
    return False


def shared_memory(process: psutil.Process) -> set[Path]:
    """Segments that ``process`` has mapped under ``/dev/shm``."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
        names = (line.split(maxsplit=5)[5] for line in lines if line.count(" ") >= 5 and str(SHARED_MEMORY) in line)
        return {Path(name) for name in names if name.startswith(f"{SHARED_MEMORY}/") and "(deleted)" not in name}
    return set()


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for temporary files of this process's descendants, gone at the end.

    Folders of supervisors that were killed before they could clean up are taken away first. The path is short: Unix
    sockets below it may have 107 characters in all.
    """
    root = Path(tempfile.gettempdir())
    for stale in root.glob(f"{SCRATCH}*-*"):
        owner = stale.name.removeprefix(SCRATCH).partition("-")[0]
        if owner.isdigit() and not _runs(int(owner)):
            _take_away(stale)
    folder = Path(tempfile.mkdtemp(prefix=f"{SCRATCH}{os.getpid()}-", dir=root))
    try:
        yield folder
    finally:
        _take_away(folder)


def note_segments(prefix: str) -> None:
    """Called in a process of the tree: shared memory whose name begins with ``prefix`` goes when the tree does."""
    scratch = Path(tempfile.gettempdir())
    if scratch.name.startswith(SCRATCH):
        with (scratch / SEGMENTS).open("a") as file:
            file.write(f"{prefix}\n")


def _take_away(scratch: Path) -> None:
    # Nothing to read is the usual case, and another user's folder is none of our business.
    with contextlib.suppress(OSError):
        # A supervisor below this one may have been killed with its own folder still full.
        prefixes = tuple(prefix for notes in scratch.rglob(SEGMENTS) for prefix in notes.read_text().split())
        for segment in SHARED_MEMORY.iterdir():
            if segment.name.startswith(prefixes):
                segment.unlink(missing_ok=True)
    shutil.rmtree(scratch, ignore_errors=True)
