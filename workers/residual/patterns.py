"""Name the way in which a rank's residual is wrong."""

from __future__ import annotations

import torch


def name_pattern(got: torch.Tensor, slices: list[torch.Tensor], rank: int) -> str:
    """``got`` differs from ``slices[rank]``, the part this rank should hold; what is it instead?

    Returns:
        ``nan``; ``zeros``; ``slice-of-rank-<j>``: another rank's part; ``shifted-by-a-token``: the right rows, one
        place on or back; ``doubled``, ``halved``, ``negated``; else ``values``.
    """
    if not torch.isfinite(got).all():
        return "nan"
    if not got.any():
        return "zeros"
    for other, expected in enumerate(slices):
        shared = min(len(got), len(expected))
        if other != rank and shared and torch.equal(got[:shared], expected[:shared]):
            return f"slice-of-rank-{other}"
    return _own_but_changed(got, slices[rank])


def _own_but_changed(got: torch.Tensor, expected: torch.Tensor) -> str:
    if len(got) > 1 and (torch.equal(got[1:], expected[:-1]) or torch.equal(got[:-1], expected[1:])):
        return "shifted-by-a-token"
    for name, factor in (("doubled", 2), ("halved", 0.5), ("negated", -1)):
        if torch.equal(got, expected * factor):
            return name
    return "values"
