"""What a process of an engine is doing, as nested spans, in a file of its own in the arm's folder.

One JSON list to a line: ``["B", t, thread, name]`` where a span begins (with its arguments as a fifth item, if it has
any), ``["E", t, thread, name]`` where it ends. ``t`` is the machine's monotonic clock, in seconds, as in the events:
PyTorch stamps its own log of the same spans with the wall clock, which may jump. Every line is written at once, so of a
process that is killed all is there up to that moment. ``workers.probes.spans`` reads the file.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workers import environment
from workers.probes.spans import MOST_LINES, PREFIX, SUFFIX


class Recorder:
    """One per process; a process that was forked off begins a file of its own."""

    def __init__(self) -> None:
        self._pid = 0
        self._file: int | None = None
        self._lines = 0

    def begin(self, name: str, arguments: dict[str, Any] | None = None) -> None:
        line: list[Any] = ["B", time.monotonic(), threading.get_native_id(), name]
        self._write([*line, arguments] if arguments else line)

    def end(self, name: str) -> None:
        self._write(["E", time.monotonic(), threading.get_native_id(), name])

    def _write(self, line: list[Any]) -> None:
        if self._pid != os.getpid():
            self._open()
        if self._file is None or self._lines >= MOST_LINES:
            return
        self._lines += 1
        # A full disk is the cache root's trouble, and told there; it must not end the engine.
        with contextlib.suppress(OSError):
            os.write(self._file, json.dumps(line, default=str).encode() + b"\n")

    def _open(self) -> None:
        self._pid, self._file, self._lines = os.getpid(), None, 0
        folder = os.environ.get(environment.SPANS)
        if folder:
            path = Path(folder) / f"{PREFIX}{self._pid}{SUFFIX}"
            with contextlib.suppress(OSError):
                self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)


RECORDER = Recorder()


@contextlib.contextmanager
def span(name: str, arguments: dict[str, Any] | None = None) -> Iterator[None]:
    """Whatever runs inside is ``name``. Spans may nest."""
    RECORDER.begin(name, arguments)
    try:
        yield
    finally:
        RECORDER.end(name)
