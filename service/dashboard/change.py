"""How far a time is from its baseline, in words, a sign and one of seven shades. No I/O, no clock."""

from __future__ import annotations

from dataclasses import dataclass

from service.dashboard.formats import NBSP

STEPS = (0.03, 0.10, 0.20)
"""Changes that are told apart, as parts of the baseline. Less than the first is none: starts differ by as much."""


@dataclass(frozen=True)
class Change:
    """``shade``: ``d0`` for none, ``d1`` to ``d3`` for slower, ``f1`` to ``f3`` for faster."""

    ratio: float
    shade: str
    short: str
    words: str

    @property
    def any(self) -> bool:
        return self.shade != "d0"


def change(now_s: float | None, baseline_s: float | None) -> Change | None:
    """``None`` where there is nothing to compare."""
    if now_s is None or baseline_s is None or baseline_s <= 0:
        return None
    ratio = now_s / baseline_s - 1
    steps = sum(abs(ratio) >= step for step in STEPS)
    percent = f"{abs(ratio) * 100:.0f}{NBSP}%"
    if steps == 0:
        return Change(ratio, "d0", f"±{percent}", "as its baseline")
    if ratio > 0:
        return Change(ratio, f"d{steps}", f"▲{NBSP}{percent}", f"{percent} slower than its baseline")
    return Change(ratio, f"f{steps}", f"▼{NBSP}{percent}", f"{percent} faster than its baseline")


LEGEND = (
    ("f3", "▼ 20 % faster and more"),
    ("f2", "▼ 10 %"),
    ("f1", "▼ 3 %"),
    ("d0", "no change, or no baseline"),
    ("d1", "▲ 3 %"),
    ("d2", "▲ 10 %"),
    ("d3", "▲ 20 % slower and more"),
)
"""Shades with what they stand for, from faster to slower."""
