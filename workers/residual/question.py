"""What a comparison is asked, and by how much rounding alone may move a residual."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from workers.protocol import Floor, Policy, Role
from workers.residual.rows import Rows

LARGEST_SCORE = 1e30
"""Stands for an infinite score, which JSON cannot carry."""

ACCUMULATED = 3
"""Last digits of float32 that a long sum loses, for each that rounding the result loses. Between compiled kernels on
two ranks and eager ones on one, 16 in all were seen, over the 8000 tokens of a plan and two layers."""

Place = tuple[int, int]
"""Step and site."""


@dataclass(frozen=True)
class Spot:
    step: int
    site: int
    rank: int


@dataclass(frozen=True)
class Question:
    """What is compared. ``scattered``: the subject holds the residual by tokens over its ranks (SP).

    ``whole``: steps and sites at which each of its ranks holds all of it even so, since the graph that ran there was
    not rewritten. ``noise_factor``: a score up to this passes where bit equality is not owed. ``noise``: per site the
    relative error that scores 1, where it was measured; elsewhere :func:`noise_floor` is taken. ``steps``: those in
    which both arms were given the same tokens; all, if nothing is said. ``dtype``: of what was recorded, where only
    sketches are left of it. ``by_rank``: each rank is held against the same rank of the other arm, not against rank 0.
    ``seeds``: of the runs in which ``noise`` was measured.
    """

    subject: Role
    against: Role
    scattered: bool
    bitwise: bool
    sites: int
    noise_factor: float
    noise: tuple[float, ...] | None = None
    steps: frozenset[int] | None = None
    whole: frozenset[Place] = frozenset()
    dtype: torch.dtype | None = None
    by_rank: bool = False
    seeds: tuple[int, ...] = ()
    modelled_factor: float = Policy().modelled_factor
    modelled_growth: float = Policy().modelled_growth

    def scattered_at(self, step: int, site: int) -> bool:
        return self.scattered and (step, site) not in self.whole

    def floor(self, rows: Rows, site: int) -> float:
        """The relative error that scores 1 at ``site``. Never below the last digit of what was recorded."""
        dtype = rows.dtype or self.dtype or torch.float32
        if self.noise is None:
            return max(noise_floor(dtype, site, self.modelled_factor, self.modelled_growth), rows.digits)
        return max(self.noise[site], torch.finfo(dtype).eps, rows.digits)

    @property
    def kind_of_floor(self) -> Floor:
        if self.bitwise:
            return Floor.BITWISE
        return Floor.MODELLED if self.noise is None else Floor.MEASURED


def noise_floor(
    dtype: torch.dtype,
    site: int,
    factor: float = Policy().modelled_factor,
    growth: float = Policy().modelled_growth,
) -> float:
    """Modelled relative error of a token that rounding alone makes at ``site``: factor · growth^layer · eps.

    The embedding is layer 0, the first layer's two sites are layer 1. ``eps`` is the last digit of ``dtype`` and, since
    products are added up in float32 whatever the format, ``ACCUMULATED`` last digits of that. A model, not a
    measurement: tests hold it against residual streams whose sums were added in other orders, in float32 and bfloat16.
    """
    eps = torch.finfo(dtype).eps + ACCUMULATED * torch.finfo(torch.float32).eps
    return factor * growth ** ((site + 1) // 2) * eps
