"""Measurements of Shardproof itself, in the engine environment. This module imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

NAMES = ("residual", "fallback", "full-graph")
"""What ``python -m workers.bench`` can measure."""

DEEP = ("fallback",)
"""Those with figures that take minutes each and are measured when asked for."""

MORE, LESS = "more", "less"
"""Which figures are better."""


@dataclass(frozen=True)
class Measured:
    """``figure`` in ``unit`` sums up ``rows``; ``goal`` is enough, ``None`` where nothing is owed.

    ``better``: ``MORE`` or ``LESS``. ``threads`` did the work.
    """

    figure: float
    unit: str
    goal: float | None
    threads: int
    rows: list[dict[str, Any]]
    better: str = MORE
