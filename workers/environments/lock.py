"""Locks on files: the kernel takes them back when a process ends, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


class Lock:
    """A lock for one holder. Use inside :func:`opened`; the time of its file says when it was used last."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def share(self) -> None:
        """Hold it together with others that share it; wait for one that has it alone."""
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def alone(self) -> None:
        """Hold it alone; wait for all others. Whoever shared it has let go of it in between."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def alone_at_once(self) -> bool:
        """Hold it alone if nobody else has it in any way."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def touch(self) -> None:
        os.utime(self._descriptor)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Lock]:
    """The lock at ``path``, not yet held; let go of at the end. The file is never deleted: others may wait on it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        yield Lock(descriptor)
    finally:
        os.close(descriptor)
