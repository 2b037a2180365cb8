"""Who drives a sweep: this controller process, told apart from any other, also from a later one with the same id."""

from __future__ import annotations

import socket

import psutil


def me() -> str:
    """``host:pid:start`` of this process."""
    return _identity(psutil.Process())


def alive(owner: str) -> bool:
    """Is ``owner`` a running process? One on another machine cannot be asked and counts as running.

    A process that has ended and that nobody has waited for (in a container perhaps never) does not run.
    """
    host, _, rest = owner.rpartition(":")[0].rpartition(":")
    if host != socket.gethostname() or not rest.isdigit():
        return host != socket.gethostname()
    try:
        process = psutil.Process(int(rest))
        return process.status() != psutil.STATUS_ZOMBIE and _identity(process) == owner
    except psutil.NoSuchProcess:
        return False


def _identity(process: psutil.Process) -> str:
    return f"{socket.gethostname()}:{process.pid}:{process.create_time():.2f}"
