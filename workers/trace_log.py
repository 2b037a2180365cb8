"""PyTorch's structured trace, as far as one has to know it to see that a log was cut in the middle.

A record is a line that begins with ``V``, with JSON behind the ``]`` of its head. Where the JSON names the MD5 of a
payload, the payload follows in lines that begin with a tab.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

_HEAD = re.compile(rb"^V\d{4} [^\]]*\] (?P<record>.*)$")


@dataclass(frozen=True)
class TraceLog:
    """``whole``: so many bytes, from the beginning, are whole records. ``open_events``: begun there and not ended."""

    path: Path
    size: int
    whole: int
    records: int
    open_events: tuple[str, ...]

    @property
    def cut(self) -> str | None:
        """What shows that the log does not end where its process ended it, in words; ``None`` where nothing does."""
        if self.whole < self.size:
            return (
                f"it ends in the middle of a record, {self.size - self.whole:,} bytes after {self.records:,} whole ones"
            )
        if self.open_events:
            return f"it ends inside {' / '.join(self.open_events)}"
        return None


def examine(path: Path) -> TraceLog:
    """Read ``path`` to the last record that is whole."""
    content = path.read_bytes()
    whole = records = 0
    open_events: list[str] = []
    for begin, end in _bounds(content):
        payload = _payload(content[begin:end])
        if payload is None:
            break
        whole, records = end, records + 1
        _follow(payload, open_events)
    return TraceLog(path, len(content), whole, records, tuple(open_events))


def _bounds(content: bytes) -> list[tuple[int, int]]:
    """Where each record begins and the next one does."""
    begins = [found.start() for found in re.finditer(rb"^(?!\t)", content, re.MULTILINE)]
    bounds = [*(begin for begin in begins if begin < len(content)), len(content)]
    return list(pairwise(bounds))


def _payload(record: bytes) -> dict[str, Any] | None:
    """The chromium event of a whole record, empty for any other; ``None`` of one that is cut."""
    head, _, payload = record.partition(b"\n")
    found = _HEAD.match(head)
    if found is None or not record.endswith(b"\n"):
        return None
    try:
        said = json.loads(found["record"])
    except ValueError:
        return None
    text = b"\n".join(line.removeprefix(b"\t") for line in payload.splitlines())
    if said.get("has_payload") not in (None, hashlib.md5(text, usedforsecurity=False).hexdigest()):
        return None
    return dict(json.loads(text)) if "chromium_event" in said and text else {}


def _follow(event: dict[str, Any], open_events: list[str]) -> None:
    name = str(event.get("name"))
    if event.get("ph") == "B":
        open_events.append(name)
    elif event.get("ph") == "E" and name in open_events:
        del open_events[len(open_events) - 1 - open_events[::-1].index(name) :]
