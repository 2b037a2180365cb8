"""Events from every process of an engine to its actor, as JSON lines through one named pipe.

A write of at most ``PIPE_BUF`` bytes is atomic, so lines of several processes do not mix. When the reader is gone the
event is dropped: the supervisor, not the pipe, ends an engine that nobody waits for.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workers import environment

_lock = threading.Lock()
_pipe: int | None = None


def _open() -> int | None:
    global _pipe
    path = os.environ.get(environment.EVENTS)
    if _pipe is None and path:
        with contextlib.suppress(OSError):
            _pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            os.set_blocking(_pipe, True)
    return _pipe


def emit(kind: str, **data: Any) -> None:
    """Send one event. ``t`` is the machine's monotonic clock, which all processes share."""
    line = _encode({"kind": kind, "t": time.monotonic(), "pid": os.getpid(), **data})
    with _lock:
        pipe = _open()
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(pipe, line)


def _encode(event: dict[str, Any]) -> bytes:
    line = json.dumps(event).encode() + b"\n"
    if len(line) > select.PIPE_BUF:
        event["message"] = str(event.get("message", ""))[:500]
        event = {key: event[key] for key in ("kind", "t", "pid", "rank", "name", "message") if key in event}
        line = json.dumps(event).encode()[: select.PIPE_BUF - 1] + b"\n"
    return line


def process_started() -> float:
    """When this process was started, on the monotonic clock (to a hundredth of a second)."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    since_boot = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return since_boot - (time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic())


@contextlib.contextmanager
def phase(name: str, rank: int | None = None) -> Iterator[None]:
    """Time a phase of this process. Phases may nest; an error inside is reported with the phase it happened in."""
    emit("phase-begin", name=name, rank=rank)
    try:
        yield
    except BaseException as error:
        emit("error", name=name, rank=rank, message=f"{type(error).__name__}: {error}"[:2000])
        raise
    finally:
        emit("phase-end", name=name, rank=rank)
