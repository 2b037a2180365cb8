"""What another machine tells, told as if it had happened on this one.

Its processes get numbers that none here can have, and its times are those of this machine's clock. ``number``: of the
machine, from 1. ``behind``: by how many seconds its clock is behind.
"""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

from workers.arms import LOG, MOST_PROCESSES, RawEvent
from workers.probes.spans import PREFIX, SUFFIX
from workers.watchdog.frames import Frame, Stack, Thread


def process(pid: int, number: int) -> int:
    """The number under which process ``pid`` is known here; that of a thread likewise."""
    return pid + number * MOST_PROCESSES


def event(raw: RawEvent, number: int, behind: float) -> RawEvent | None:
    """``None`` for what nobody is to hear: phases of a process that has no rank and leads nothing."""
    if raw.get("rank") is None and raw["kind"] != "error":
        return None
    times = {key: raw[key] + behind for key in ("t", "started") if isinstance(raw.get(key), int | float)}
    return raw | times | {"pid": process(raw["pid"], number)}


def stack(plain: dict[str, Any], number: int) -> Stack:
    """From a ``Stack`` as a plain dictionary."""
    threads = tuple(
        Thread(thread["name"], thread["main"], tuple(Frame(**frame) for frame in thread["frames"]))
        for thread in plain["threads"]
    )
    pid, parent = process(plain["pid"], number), process(plain["parent"], number)
    return Stack(pid, parent, plain["command"], threads, plain["problem"])


def name(of: str, number: int) -> PurePosixPath:
    """Under which name in the arm's folder a file is kept that was called ``of`` there."""
    path = PurePosixPath(of)
    if path.name == LOG:
        return path.with_name(f"{path.stem}-machine-{number}{path.suffix}")
    pid = path.name.removeprefix(PREFIX).removesuffix(SUFFIX)
    if path.name == f"{PREFIX}{pid}{SUFFIX}" and pid.isdecimal():
        return path.with_name(f"{PREFIX}{process(int(pid), number)}{SUFFIX}")
    return path


def spans(file: Path, number: int, behind: float) -> None:
    """Rewrite a file of spans, see ``workers.engine.spans``. A line that cannot be read stays as it is."""
    lines = file.read_bytes().split(b"\n")
    file.write_bytes(b"\n".join(_span(line, number, behind) for line in lines))


def _span(line: bytes, number: int, behind: float) -> bytes:
    try:
        mark, t, thread, *rest = json.loads(line)
        return json.dumps([mark, t + behind, process(thread, number), *rest]).encode()
    except (ValueError, TypeError):
        return line
