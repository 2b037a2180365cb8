"""Which rows of the whole residual a rank holds.

Under SP the tokens of a step are padded to a multiple of the ranks (or to a larger size that was compiled or captured),
and rank ``r`` holds the ``r``-th of equal, consecutive parts. Otherwise every rank holds all rows.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """``rows``: how many rows the rank has. The first are the tokens from ``start`` to ``stop``; the rest pad."""

    rows: int
    start: int
    stop: int

    @property
    def tokens(self) -> int:
        return self.stop - self.start


def part(tokens: int, ranks: int, rank: int, scattered: bool, padded: int = 0) -> Part:
    """What ``rank`` of ``ranks`` holds of ``tokens`` tokens, as the model was given ``padded`` rows (at least)."""
    if not scattered:
        return Part(tokens, 0, tokens)
    rows = -(-max(tokens, padded) // ranks)
    start = min(rank * rows, tokens)
    return Part(rows, start, min(start + rows, tokens))
