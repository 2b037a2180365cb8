"""Figures as pages show them. No I/O, no clock."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

NOTHING = "—"
"""Stands for what was not looked at; a zero is a measurement."""

NBSP = "\N{NO-BREAK SPACE}"
_STEPS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_AGES = ((86400, "d"), (3600, "h"), (60, "min"))


def seconds(value: Any) -> str:
    """``12.3 s``, kept on one line; a value that is absent is a dash."""
    return NOTHING if value is None else f"{float(value):.1f}{NBSP}s"


def amount(value: float | None) -> str:
    """Bytes: ``4.9 MiB``."""
    if value is None:
        return NOTHING
    for step, unit in _STEPS:
        if value >= step:
            return f"{value / step:.1f}{NBSP}{unit}"
    return f"{value:.0f}{NBSP}B"


def number(value: Any) -> str:
    """A number of any size, as short as can be; what no number is stands as it is written."""
    if value is None:
        return NOTHING
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def value(item: Any) -> str:
    """A setting as it would stand in a matrix."""
    return json.dumps(item, ensure_ascii=False)


def elapsed_s(begin: datetime | None, end: datetime | None) -> float | None:
    """Seconds between two stamps of the wall clock, which may have been set back in between."""
    return None if begin is None or end is None else max(0.0, (end - begin).total_seconds())


def age(passed_s: float) -> str:
    """``3 h ago``."""
    for step, unit in _AGES:
        if passed_s >= step:
            return f"{passed_s // step:.0f}{NBSP}{unit} ago"
    return "just now"


def plural(count: int, word: str) -> str:
    """``1 cell``, ``2 cells``."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def divergence(found: Mapping[str, Any]) -> str:
    """Where the residual goes wrong first."""
    return f"{found['pattern']} at {found['site']}, rank {found['rank']}"
