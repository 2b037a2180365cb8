"""What ``workers.engine.spans`` wrote, read back: the spans of each process of an arm.

A process that was killed leaves spans without an end, and perhaps half a line. Neither costs anything else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workers.probes.span_phases import phase_of

MOST_LINES = 200_000
"""Nothing is written beyond: an arm that runs for hours must not fill the disk. A start makes a few hundred."""

PREFIX, SUFFIX = "spans-", ".jsonl"
"""Of the file's name, around the process id."""


@dataclass
class Span:
    """A stretch of one thread's time, in seconds of the monotonic clock. ``end`` is ``None`` where none was written.

    ``depth``: how many spans of its thread are around it. ``thread``: 0 is the process's first.
    """

    name: str
    begin: float
    end: float | None
    depth: int
    thread: int
    phase: str | None
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass
class ProcessSpans:
    """In the order in which they began. ``problems``: what is wrong with the file, in words."""

    pid: int
    spans: list[Span] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def forget(folder: Path) -> None:
    """Remove what an earlier start left in ``folder``."""
    for path in _files(folder):
        path.unlink(missing_ok=True)


def read_all(folder: Path) -> dict[int, ProcessSpans]:
    """The spans of every process that wrote some, by process id."""
    found = {}
    for path in sorted(_files(folder)):
        pid = path.name[len(PREFIX) : -len(SUFFIX)]
        if pid.isdecimal():
            found[int(pid)] = read(path, int(pid))
    return found


def _files(folder: Path) -> Iterator[Path]:
    return folder.glob(f"{PREFIX}*{SUFFIX}")


def read(path: Path, pid: int) -> ProcessSpans:
    """The spans in one file."""
    found = ProcessSpans(pid)
    stacks: dict[int, list[Span]] = {}
    threads = {pid: 0}
    content = path.read_bytes()
    lines = content.splitlines()
    broken = 0
    for line in lines:
        record = _record(line)
        if record is None:
            broken += 1
            continue
        kind, t, native, name, *rest = record
        stack = stacks.setdefault(native, [])
        if kind == "B":
            thread = threads.setdefault(native, len(threads))
            phase = phase_of(name, stack[-1].phase if stack else None)
            span = Span(name, t, None, len(stack), thread, phase, rest[0] if rest else {})
            stack.append(span)
            found.spans.append(span)
        else:
            _end(stack, name, t)
    found.problems += _problems(content, broken, len(lines))
    return found


def _record(line: bytes) -> list[Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    whole = isinstance(record, list) and len(record) >= 4 and record[0] in ("B", "E")
    return record if whole and isinstance(record[1], float) and isinstance(record[3], str) else None


def _end(stack: list[Span], name: str, t: float) -> None:
    """End the innermost span of that name, and with it what began inside and never said that it ended."""
    if not any(span.name == name for span in stack):
        return
    while stack:
        span = stack.pop()
        span.end = t
        if span.name == name:
            return


def _problems(content: bytes, broken: int, lines: int) -> Iterator[str]:
    cut = bool(content) and not content.endswith(b"\n")
    if cut:
        yield "its spans end in the middle of a line: it was killed while it wrote"
    if broken > cut:
        yield f"{broken - cut} of {lines} lines of its spans could not be read"
    if lines >= MOST_LINES:
        yield f"its spans were not written beyond {MOST_LINES:,} lines"
