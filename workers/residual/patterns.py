"""Name the way in which a rank's residual is wrong."""

from __future__ import annotations

import torch


def name_pattern(got: torch.Tensor, slices: list[torch.Tensor], rank: int) -> str:
    """``got`` differs from ``slices[rank]``, the part this rank should hold; what is it instead?

    Returns:
        ``nan``, ``zeros``, ``slice-of-rank-<j>`` when it is another rank's part, else ``values``.
    """
    if not torch.isfinite(got).all():
        return "nan"
    if not got.any():
        return "zeros"
    for other, expected in enumerate(slices):
        shared = min(len(got), len(expected))
        if other != rank and shared and torch.equal(got[:shared], expected[:shared]):
            return f"slice-of-rank-{other}"
    return "values"
