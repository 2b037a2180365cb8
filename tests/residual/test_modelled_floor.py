"""The modelled noise floor against real numbers: residual streams whose partial sums are added in other orders.

Factor and growth of the policy are right when no such stream comes near a score that fails, and when the floor is not
so high that anything would pass.
"""

from __future__ import annotations

import pytest
import torch

from workers.protocol import Policy
from workers.residual.question import noise_floor
from workers.residual.rows import rows_of

DTYPES = [torch.float32, torch.bfloat16]
TOKENS, HIDDEN = 8, 64


def stream(layers: int, ranks: int, order: list[int], dtype: torch.dtype, seed: int) -> list[torch.Tensor]:
    """The residual at each site of a network of normed linear blocks, each rank's share added in ``order``."""
    draw = torch.Generator().manual_seed(seed)
    residual = torch.randn(TOKENS, HIDDEN, generator=draw).to(dtype)
    sites = [residual]
    for _ in range(2 * layers):
        weight = torch.randn(HIDDEN, HIDDEN, generator=draw).to(dtype) / HIDDEN**0.5
        normed = torch.nn.functional.rms_norm(residual.float(), (HIDDEN,)).to(dtype)
        shares = [
            part @ rows for part, rows in zip(normed.chunk(ranks, dim=1), weight.chunk(ranks, dim=0), strict=True)
        ]
        added = shares[order[0]]
        for rank in order[1:]:
            added = added + shares[rank]
        residual = residual + added
        sites.append(residual)
    return sites


def scores(layers: int, ranks: int, dtype: torch.dtype, seed: int) -> list[float]:
    straight = stream(layers, ranks, list(range(ranks)), dtype, seed)
    other = stream(
        layers, ranks, torch.randperm(ranks, generator=torch.Generator().manual_seed(seed)).tolist(), dtype, seed
    )
    return [
        rows_of(found).hold(rows_of(expected)).worst / noise_floor(dtype, site)
        for site, (found, expected) in enumerate(zip(other, straight, strict=True))
    ]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("layers", "ranks"), [(2, 4), (8, 8), (32, 4)])
def test_rounding_alone_stays_below_the_floor(layers: int, ranks: int, dtype: torch.dtype) -> None:
    worst = max(max(scores(layers, ranks, dtype, seed)) for seed in range(2))
    assert 0.005 < worst < 1.0


@pytest.mark.parametrize("layers", [2, 32])
def test_float32_against_double_precision_grows_no_faster_than_the_model(layers: int) -> None:
    """What other kernels may make of the same sums, which are as long as the row: measured against exact ones."""
    exact = stream(layers, 4, [0, 1, 2, 3], torch.float64, 3)
    low = stream(layers, 4, [0, 1, 2, 3], torch.float32, 3)
    found = [
        rows_of(one).hold(rows_of(other)).worst / noise_floor(torch.float32, site)
        for site, (one, other) in enumerate(zip(low, exact, strict=True))
    ]
    assert 0.02 < max(found) < 1.0


@pytest.mark.parametrize("layers", [2, 32])
def test_bfloat16_against_full_precision_stays_below_what_passes(layers: int) -> None:
    """As an arm is held against the reference: the same weights, all arithmetic in another format."""
    for seed in range(2):
        low = stream(layers, 4, [0, 1, 2, 3], torch.bfloat16, seed)
        reference = _in_full_precision(layers, seed)
        found = [
            rows_of(one).hold(rows_of(other)).worst / noise_floor(torch.bfloat16, site)
            for site, (one, other) in enumerate(zip(low, reference, strict=True))
        ]
        assert max(found) < Policy().noise_factor
        assert max(found) > 0.1


def _in_full_precision(layers: int, seed: int) -> list[torch.Tensor]:
    """The bfloat16 stream's own weights, computed in float32."""
    draw = torch.Generator().manual_seed(seed)
    residual = torch.randn(TOKENS, HIDDEN, generator=draw).bfloat16().float()
    sites = [residual]
    for _ in range(2 * layers):
        weight = (torch.randn(HIDDEN, HIDDEN, generator=draw).bfloat16() / HIDDEN**0.5).float()
        residual = residual + torch.nn.functional.rms_norm(residual, (HIDDEN,)) @ weight
        sites.append(residual)
    return sites


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_lost_share_is_far_above_it(dtype: torch.dtype) -> None:
    """The smallest fault of a sum: one of eight ranks did not take part, at one site."""
    straight = stream(8, 8, list(range(8)), dtype, 0)
    lost = stream(8, 8, list(range(7)), dtype, 0)
    for site in range(1, len(straight)):
        error = rows_of(lost[site]).hold(rows_of(straight[site])).worst
        assert error > Policy().noise_factor * noise_floor(dtype, site)
