"""Fast answers are the plain ones: against torch's own, on every kind of number."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.residual import measure

ROUNDING = 2.0**-53
"""Of a float64. A norm may be off by as much for each number of its row, and by four times that."""

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


def test_equal_bits_that_are_no_number_are_not_equal() -> None:
    value = torch.full((2, 8), math.nan)
    assert not measure.equal(value, value.clone())


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=12),
    st.sampled_from(DTYPES),
    st.integers(0, 3),
    st.booleans(),
)
def test_equal_for_any_bits(words: list[int], dtype: torch.dtype, flipped: int, loops: bool) -> None:
    """Every pattern of bits is somebody's NaN, infinity or number."""
    one = torch.tensor([words, words], dtype=torch.int64)
    other = one.clone()
    other[-1, -1] ^= flipped << 31
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "COMPILED_LOOPS", loops)
        for held in (one, other):
            assert measure.equal(one.view(dtype), held.view(dtype)) == torch.equal(one.view(dtype), held.view(dtype))


@pytest.mark.parametrize("sign", [0, -1])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_equal_next_to_infinity(dtype: torch.dtype, sign: int) -> None:
    """The largest number and the infinity equal themselves, the NaN one bit further does not. Wherever it stands."""
    integers = {8: torch.int64, 4: torch.int32, 2: torch.int16}[dtype.itemsize]
    infinity = int(torch.tensor(math.inf, dtype=dtype).view(integers))
    lowest = torch.iinfo(integers).min
    for place in range(8):
        for bits, equal in ((infinity - 1, True), (infinity, True), (infinity + 1, False)):
            one = torch.zeros(1, 8, dtype=integers)
            one[0, place] = bits + (lowest if sign else 0)
            one = one.view(dtype)
            assert measure.equal(one, one.clone()) == equal == torch.equal(one, one.clone())


@pytest.mark.parametrize("offset", [0, 1, 4])
def test_equal_from_any_address(offset: int) -> None:
    """A word of 64 bits can only be read where one starts."""
    value = torch.randn(2 * 8 + 4, generator=torch.Generator().manual_seed(4)).bfloat16()
    one = value[offset : offset + 16].view(2, 8)
    other = one.clone()
    assert measure.equal(one, other)
    other[1, 7] += 1.0
    assert not measure.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool])
def test_equal_of_what_has_no_exponent(dtype: torch.dtype) -> None:
    one = torch.ones(2, 8, dtype=dtype)
    assert measure.equal(one, one.clone())
    assert not measure.equal(one, torch.zeros(2, 8, dtype=dtype))


def test_shapes_tell_apart() -> None:
    assert not measure.equal(torch.zeros(2, 8), torch.zeros(4, 4))


def test_nothing_is_finite_and_equal() -> None:
    empty = torch.zeros(0, 8)
    assert measure.finite(empty)
    assert measure.equal(empty, empty.clone())


def norms(value: torch.Tensor) -> torch.Tensor:
    """Of each row, with all sums exact but for the last digit: Python's own."""
    exact = [math.sqrt(math.fsum(x * x for x in row)) for row in value.double().tolist()]
    return torch.tensor(exact, dtype=torch.float64)


def assert_rows_as_in_torch(found: torch.Tensor, expected: torch.Tensor) -> None:
    measured = measure.rows(found, expected)
    x, y = found.double(), expected.double()
    assert measured.equal.tolist() == [torch.equal(*pair) for pair in zip(x, y, strict=True)]
    finite = x.isfinite().all(dim=-1) & y.isfinite().all(dim=-1)
    assert measured.finite.tolist() == finite.tolist()
    assert measured.size.isfinite().tolist() == y.isfinite().all(dim=-1).tolist()
    assert not measured.error[~finite].isfinite().any()
    bound = (found.shape[1] + 4) * ROUNDING
    torch.testing.assert_close(measured.error[finite], norms((x - y)[finite]), rtol=bound, atol=0.0)
    torch.testing.assert_close(measured.size[finite], norms(y[finite]), rtol=bound, atol=0.0)
    quotients = zip(measured.equal & finite, finite & (measured.size > 0), measured.error / measured.size, strict=True)
    relative = [0.0 if equal else float(quotient) if divides else math.inf for equal, divides, quotient in quotients]
    assert measured.relative.tolist() == relative


@settings(max_examples=300, deadline=None)
@given(pairs(), st.sampled_from(DTYPES), st.booleans())
def test_rows_are_measured_as_in_float64(
    pair: tuple[torch.Tensor, torch.Tensor], reference: torch.dtype, loops: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "COMPILED_LOOPS", loops)
        assert_rows_as_in_torch(*pair)
        assert_rows_as_in_torch(pair[0], pair[1].to(reference))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_of_a_large_model(dtype: torch.dtype) -> None:
    """More than one block of them, and as wide as the stated error is given for."""
    draw = torch.Generator().manual_seed(1)
    expected = torch.randn(70, 8192, generator=draw).to(dtype)
    found = (expected.double() * (1.01 + torch.rand(70, 1, generator=draw))).to(dtype)
    found[5::7] = expected[5::7]
    assert_rows_as_in_torch(found, expected)
    assert measure.rows(found, expected).equal.nonzero().flatten().tolist() == list(range(5, 70, 7))


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
def test_the_smallest_and_the_largest_difference_are_not_lost(dtype: torch.dtype) -> None:
    """In float32 the square of either would be zero or infinite."""
    largest, smallest = torch.finfo(dtype).max, torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    expected = torch.zeros(2, 64).to(dtype)
    found = expected.clone()
    found[0, 3], found[1] = smallest, largest
    measured = measure.rows(found, expected)
    assert measured.equal.tolist() == [False, False]
    assert measured.finite.all()
    assert measured.error.tolist() == pytest.approx([smallest, largest * 8.0], rel=1e-12)


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_no_number(dtype: torch.dtype, loops: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "COMPILED_LOOPS", loops)
    nan, inf = math.nan, math.inf
    found = torch.tensor([[nan, 1], [inf, 1], [inf, 1], [1, 1], [-0.0, 1], [1, nan]], dtype=dtype)
    expected = torch.tensor([[nan, 1], [inf, 1], [-inf, 1], [inf, 1], [0.0, 1], [1, 1]], dtype=dtype)
    measured = measure.rows(found, expected)
    assert measured.equal.tolist() == [False, True, False, False, True, False]
    assert measured.finite.tolist() == [False, False, False, False, True, False]
    assert (float(measured.error[4]), float(measured.size[4])) == (0.0, 1.0)
    assert measured.relative.tolist() == [inf, inf, inf, inf, 0.0, inf]


@pytest.mark.parametrize("loops", [True, False])
def test_beside_a_row_of_zeros(loops: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "COMPILED_LOOPS", loops)
    measured = measure.rows(torch.tensor([[0.0, 0.0], [0.0, 1e-30]]), torch.zeros(2, 2))
    assert measured.relative.tolist() == [0.0, math.inf]


@pytest.mark.parametrize("shape", [(0, 8), (1, 1), (1, 4096), (3, 0)])
def test_rows_of_any_shape(shape: tuple[int, int]) -> None:
    expected = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    measured = measure.rows(expected + 1.0, expected)
    assert [len(column) for column in (measured.equal, measured.finite, measured.error, measured.size)] == 4 * [
        shape[0]
    ]
    assert_rows_as_in_torch(expected + 1.0, expected)


def test_rows_need_not_lie_one_after_the_other() -> None:
    wide = torch.randn(6, 20, generator=torch.Generator().manual_seed(3))
    assert_rows_as_in_torch(wide[::2, 1:9], wide[1::2, 3:11])
    assert_rows_as_in_torch(wide.T, wide.flip(0).T)


@pytest.mark.parametrize("other", [(3, 8), (4, 7), (32,)])
def test_rows_of_other_shapes_are_refused(other: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"cannot be held against"):
        measure.rows(torch.zeros(4, 8), torch.zeros(other))
