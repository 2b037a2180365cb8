"""What is followed over time: which figures there are, and which of them are judged."""

from __future__ import annotations

from dataclasses import dataclass

from service.domain.regression import Rules

SECONDS, BYTES = "s", "bytes"


@dataclass(frozen=True)
class Figure:
    """``words``: what it is called in a sentence. ``judged``: a change of it is told; others are only shown."""

    name: str
    unit: str
    words: str
    judged: bool = True

    def floor(self, rules: Rules) -> float:
        """A change below this is none, in the figure's unit."""
        return rules.bytes if self.unit == BYTES else rules.seconds


COLD_S = Figure("cold_s", SECONDS, "cold start")
WARM_S = Figure("warm_s", SECONDS, "warm start")
COMPILE_S = Figure("compile_s", SECONDS, "compilation on the slowest rank")
PEAK_RSS = Figure("peak_rss_bytes", BYTES, "memory of a cold start")
RANK_SPREAD_S = Figure("rank_spread_s", SECONDS, "spread of the ranks' compilation", judged=False)

FIGURES = (COLD_S, WARM_S, COMPILE_S, PEAK_RSS, RANK_SPREAD_S)

PHASE_OF_COLD, PHASE_OF_WARM = "cold.", "warm."
"""Before the name of a phase: its seconds on the rank that took longest in it. Shown and not judged."""

_BY_NAME = {figure.name: figure for figure in FIGURES}


def figure_of(name: str) -> Figure:
    """The figure of this name; the phases are made as they are asked for.

    Raises:
        KeyError: there is no such figure.
    """
    for prefix, start in ((PHASE_OF_COLD, "cold"), (PHASE_OF_WARM, "warm")):
        if name.startswith(prefix):
            phase = name.removeprefix(prefix)
            return Figure(name, SECONDS, f"{phase} in a {start} start", judged=False)
    return _BY_NAME[name]


def shown(value: float, unit: str) -> str:
    """A value of a figure in words: ``20.1 s``, ``612 MiB``."""
    if unit == BYTES:
        return f"{value / 2**20:,.0f} MiB"
    return f"{value:.3g} s" if value < 100 else f"{value:,.0f} s"


JUDGED = tuple(figure.name for figure in FIGURES if figure.judged)
