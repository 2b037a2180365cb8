"""Who drives a sweep: this controller process, told apart from any other, also from a later one with the same id."""

from __future__ import annotations

import socket

import psutil


def me() -> str:
    """``host:pid:start`` of this process."""
    return _identity(psutil.Process())


def alive(owner: str) -> bool:
    """Is ``owner`` a running process? One on another machine cannot be asked and counts as running."""
    host, _, rest = owner.rpartition(":")[0].rpartition(":")
    if host != socket.gethostname() or not rest.isdigit():
        return host != socket.gethostname()
    try:
        return _identity(psutil.Process(int(rest))) == owner
    except psutil.NoSuchProcess:
        return False


def _identity(process: psutil.Process) -> str:
    return f"{socket.gethostname()}:{process.pid}:{process.create_time():.2f}"
