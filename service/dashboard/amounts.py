"""Figures of a series in words: their names, units and amounts."""

from __future__ import annotations

from service.dashboard.formats import NOTHING

_LABELS = {
    "cold_s": "cold start",
    "warm_s": "warm start",
    "compile_s": "compilation, slowest rank",
    "peak_rss_bytes": "memory, cold start",
    "rank_spread_s": "spread of the ranks",
}

_LEAST = 0.0005
"""Seconds below which nothing is told apart."""

_BYTES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def unit_of(figure: str) -> str:
    """``s`` or ``B``, by how the figure's name ends."""
    return "B" if figure.endswith("_bytes") else "s"


def label_of(figure: str) -> str:
    """``cold_s`` as people say it: the unit stands with the amounts. ``cold.dynamo`` is a phase of the cold start."""
    start, dot, phase = figure.partition(".")
    if dot:
        return f"{start}: {phase.replace('_', ' ')}"
    return _LABELS.get(figure, figure.removesuffix("_bytes").removesuffix("_s").replace("_", " "))


def amount(value: float | None, unit: str) -> str:
    """``12.3 s``, ``0.012 s`` or ``1.25 GiB``, kept on one line; a value that is absent is a dash."""
    if value is None:
        return NOTHING
    if unit == "B":
        for size, name in _BYTES:
            if abs(value) >= size:
                return f"{value / size:.2f}\N{NO-BREAK SPACE}{name}"
        return f"{value:.0f}\N{NO-BREAK SPACE}B"
    return f"{_rounded(value)}\N{NO-BREAK SPACE}s"


def _rounded(value: float) -> str:
    """About three figures that count, and a plain zero."""
    if value == 0 or abs(value) < _LEAST:
        return "0"
    digits = 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:.{digits}f}"


def ratio(after: float | None, before: float | None) -> str:
    """``+12.3 %`` of ``before``; a dash where there is nothing to compare."""
    if after is None or before is None or before <= 0:
        return NOTHING
    return f"{(after / before - 1) * 100:+.1f}\N{NO-BREAK SPACE}%"
