"""How far a time is from its baseline, in words, a sign and one of seven shades. No I/O, no clock."""

from __future__ import annotations

from dataclasses import dataclass

from service.dashboard.formats import NBSP

STEPS = (0.05, 0.10, 0.25)
"""Changes that are told apart, as parts of the baseline. Less than the first is none: starts differ by as much."""

TELLING = 0.10
"""A change to look at. A single warm start lies as far from the next one as the first step is."""


@dataclass(frozen=True)
class Change:
    """``shade``: ``d0`` for none, ``d1`` to ``d3`` for slower, ``f1`` to ``f3`` for faster."""

    ratio: float
    shade: str
    short: str
    words: str

    @property
    def telling(self) -> bool:
        return abs(self.ratio) >= TELLING


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


_FROM = [f"{step * 100:.0f}{NBSP}%" for step in STEPS]

LEGEND = (
    ("f3", f"▼ {_FROM[2]} faster and more"),
    ("f2", f"▼ {_FROM[1]}"),
    ("f1", f"▼ {_FROM[0]}"),
    ("d0", "no change, or no baseline"),
    ("d1", f"▲ {_FROM[0]}"),
    ("d2", f"▲ {_FROM[1]}"),
    ("d3", f"▲ {_FROM[2]} slower and more"),
)
"""Shades with what they stand for, from faster to slower."""
