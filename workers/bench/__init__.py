"""Measurements of Shardproof itself, in the engine environment. This module imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

NAMES = ("residual", "fallback")
"""What ``python -m workers.bench`` can measure."""

DEEP = ("fallback",)
"""Those with figures that take minutes each and are measured when asked for."""


@dataclass(frozen=True)
class Measured:
    """``figure`` in ``unit`` sums up ``rows``; more is better, ``goal`` is enough. ``threads`` did the work."""

    figure: float
    unit: str
    goal: float
    threads: int
    rows: list[dict[str, Any]]
