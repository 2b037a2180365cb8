"""Fast answers are the plain ones: against torch's own, on every kind of number."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.residual import measure

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
SPECIAL = st.sampled_from([0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan, 3e-5])


@st.composite
def pairs(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor]:
    """Two tensors of one shape that are alike but for some elements, numbers or not."""
    dtype = draw(st.sampled_from(DTYPES))
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    one = torch.randn(rows, columns, generator=torch.Generator().manual_seed(draw(st.integers(0, 99)))).to(dtype)
    other = one.clone()
    for _ in range(draw(st.integers(0, 3))):
        value = draw(SPECIAL)
        place = draw(st.integers(0, rows - 1)), draw(st.integers(0, columns - 1))
        other[place] = value
        if draw(st.booleans()):
            one[place] = value
    return one, other


@settings(max_examples=300, deadline=None)
@given(pairs())
def test_every_answer_is_the_plain_one(pair: tuple[torch.Tensor, torch.Tensor]) -> None:
    one, other = pair
    assert measure.finite(other) == bool(torch.isfinite(other).all())
    assert measure.equal(one, other) == torch.equal(one, other)
    assert measure.differing_rows(one, other) == int((one != other).any(dim=-1).sum())
    if measure.finite(one) and measure.finite(other):
        assert measure.largest(other) == float(other.abs().max())
        exact = float((one.double() - other.double()).abs().max())
        assert measure.largest_difference(one, other) == pytest.approx(exact, rel=1e-6)


def test_equal_bits_that_are_no_number_are_not_equal() -> None:
    value = torch.full((2, 8), math.nan)
    assert not measure.equal(value, value.clone())


def test_shapes_tell_apart() -> None:
    assert not measure.equal(torch.zeros(2, 8), torch.zeros(4, 4))


@pytest.mark.parametrize("rows", [1, 700])
def test_more_than_one_block(rows: int) -> None:
    one = torch.zeros(rows, 1024)
    other = one.clone()
    other[-1, 5] = -2.0
    assert (measure.differing_rows(one, other), measure.largest_difference(one, other)) == (1, 2.0)


def test_nothing_has_no_difference() -> None:
    empty = torch.zeros(0, 8)
    assert measure.finite(empty)
    assert measure.equal(empty, empty.clone())
    assert measure.largest_difference(empty, empty) == 0.0
