"""What a wrong residual is, in a word."""

from __future__ import annotations

import pytest
import torch

from workers.residual.patterns import name_pattern

SLICES = [torch.arange(6.0).reshape(2, 3) + 10 * rank + 1 for rank in range(3)]
SHORT = [*SLICES, torch.full((1, 3), 99.0), torch.empty(0, 3)]
"""The last rank but one holds one token only, the last one none."""


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_number_that_is_none(value: float) -> None:
    got = SLICES[0].clone()
    got[1, 2] = value
    assert name_pattern(got, SLICES, 1) == "nan"


def test_zeros() -> None:
    assert name_pattern(torch.zeros(2, 3), SLICES, 1) == "zeros"
    almost = torch.zeros(2, 3)
    almost[0, 0] = 1e-30
    assert name_pattern(almost, SLICES, 1) == "values"


@pytest.mark.parametrize(("other", "rank"), [(0, 1), (0, 2), (2, 0), (1, 2)])
def test_the_slice_of_another_rank(other: int, rank: int) -> None:
    assert name_pattern(SLICES[other].clone(), SLICES, rank) == f"slice-of-rank-{other}"


def test_a_short_slice_is_known_by_the_rows_it_has() -> None:
    got = torch.cat([SHORT[3], torch.full((1, 3), 7.0)])
    assert name_pattern(got, SHORT, 0) == "slice-of-rank-3"


def test_a_slice_without_tokens_is_nobody_s() -> None:
    assert name_pattern(torch.full((2, 3), 7.0), SHORT, 0) == "values"


def test_its_own_slice_changed_is_just_values() -> None:
    got = SLICES[1].clone()
    got[0, 0] += 1e-3
    assert name_pattern(got, SLICES, 1) == "values"
    # Equal to its own slice it would not be asked about; it is not called another rank's either.
    assert name_pattern(SLICES[1].clone(), SLICES, 1) == "values"


@pytest.mark.parametrize("places", [1, -1])
def test_rows_one_place_off(places: int) -> None:
    slices = [torch.randn(4, 3), torch.randn(4, 3)]
    assert name_pattern(slices[1].roll(places, dims=0), slices, 1) == "shifted-by-a-token"
    assert name_pattern(slices[1].roll(2 * places, dims=0), slices, 1) == "values"


def test_a_single_row_is_not_shifted() -> None:
    assert name_pattern(torch.ones(1, 3), [torch.zeros(1, 3) + 5, torch.full((1, 3), 7.0)], 0) == "values"


@pytest.mark.parametrize(("factor", "name"), [(2, "doubled"), (0.5, "halved"), (-1, "negated"), (1.001, "values")])
def test_a_factor_on_everything(factor: float, name: str) -> None:
    assert name_pattern(SLICES[1] * factor, SLICES, 1) == name
