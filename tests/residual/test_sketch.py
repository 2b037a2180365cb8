"""Hashes tell rows apart bit by bit; projections estimate relative errors as well as is said."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.residual import sketch as module
from workers.residual.sketch import (
    BYTES_PER_TOKEN,
    DTYPES,
    ESTIMATE_FLOOR,
    Sketch,
    equal_rows,
    estimated_relative_error,
    sketch,
    sketch_in_torch,
)

Path = Callable[[torch.Tensor], Sketch]
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
WIDTHS = [1, 3, 64, 255, 256, 257, 1000, 4096]
PATHS = [pytest.param(sketch, id="compiled"), pytest.param(lambda rows: sketch_in_torch(rows, 0), id="torch")]
properties = settings(max_examples=150, deadline=None)


def random_rows(rows: int, hidden: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, hidden, generator=torch.Generator().manual_seed(seed)).to(dtype)


def flip(rows: torch.Tensor, row: int, column: int, bit: int) -> torch.Tensor:
    """A copy with one bit of one number the other way round."""
    bits = rows.clone().view(BITS[rows.element_size()])
    bits[row, column] ^= torch.tensor(1, dtype=bits.dtype) << bit
    return bits.view(rows.dtype)


@dataclass(frozen=True)
class Flip:
    rows: torch.Tensor
    row: int
    column: int
    bit: int


@st.composite
def flips(draw: st.DrawFn) -> Flip:
    dtype = draw(st.sampled_from(DTYPES))
    count, hidden = draw(st.integers(1, 5)), draw(st.integers(1, 1200))
    return Flip(
        random_rows(count, hidden, dtype, draw(st.integers(0, 2**20))),
        draw(st.integers(0, count - 1)),
        draw(st.integers(0, hidden - 1)),
        draw(st.integers(0, 8 * dtype.itemsize - 1)),
    )


@pytest.mark.slow
@properties
@given(flips())
def test_one_bit_changes_the_hash_of_its_row_alone(case: Flip) -> None:
    before, after = sketch(case.rows), sketch(flip(case.rows, case.row, case.column, case.bit))
    expected = [row != case.row for row in range(len(case.rows))]
    assert equal_rows(after, before).tolist() == expected
    assert (after.projection == before.projection).all(dim=-1)[torch.tensor(expected)].all()


@properties
@given(flips())
def test_a_row_is_sketched_alike_wherever_it_stands(case: Flip) -> None:
    order = torch.randperm(len(case.rows), generator=torch.Generator().manual_seed(case.column))
    straight, mixed = sketch(case.rows), sketch(case.rows[order])
    assert torch.equal(mixed.hashes, straight.hashes[order])
    assert torch.equal(mixed.projection, straight.projection[order])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("hidden", WIDTHS)
def test_both_formulations_agree(dtype: torch.dtype, hidden: int) -> None:
    rows = random_rows(20, hidden, dtype)
    compiled, plain = sketch(rows, 3), sketch_in_torch(rows, 3)
    assert torch.equal(compiled.hashes, plain.hashes)
    assert len(set(plain.hashes.tolist())) == len(rows.unique(dim=0))
    assert estimated_relative_error(compiled, Sketch(plain.hashes + 1, plain.projection)).max() < ESTIMATE_FLOOR


def test_the_formulation_in_torch_works_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = random_rows(7, 300)
    whole = sketch(rows)
    monkeypatch.setattr(module, "WORKING_WORDS", 600)
    assert torch.equal(sketch_in_torch(rows, 0).hashes, whole.hashes)


def test_nothing_waits_for_the_device() -> None:
    """A tensor on ``meta`` has no values: whoever asks for one fails."""
    found = sketch(torch.empty(5, 300, device="meta", dtype=torch.bfloat16))
    assert (found.hashes.shape, found.projection.shape) == ((5,), (5, 64))


def test_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = random_rows(5, 70)
    monkeypatch.setattr(module, "COMPILED_LOOPS", False)
    assert torch.equal(sketch(rows).hashes, sketch_in_torch(rows, 0).hashes)


def test_the_numbers_never_change() -> None:
    """Sketches that were stored are held against new ones."""
    found = sketch(torch.arange(600.0)[None])
    assert found.hashes.item() == PINNED_HASH
    assert found.projection[0, :3].tolist() == pytest.approx(PINNED_NUMBERS, rel=1e-6)


PINNED_HASH = 3141452253391580490
PINNED_NUMBERS = [-643.46716, -283.54980, -1303.90491]

ELSEWHERE = """
import torch
from workers.residual.sketch import sketch
torch.set_num_threads(1)
found = sketch((torch.arange(3000.0).reshape(3, 1000) * 0.37).to(torch.bfloat16), 11)
print(found.hashes.tolist(), found.projection.view(torch.int32).tolist())
"""


@pytest.mark.slow
def test_every_process_has_the_same_sketch(capfd: pytest.CaptureFixture[str]) -> None:
    exec(ELSEWHERE, {})
    here = capfd.readouterr().out
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], capture_output=True, text=True, check=True)
    assert done.stdout == here


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_an_ulp_apart_do_not_collide(path: Path, dtype: torch.dtype) -> None:
    """All 2^16 choices of moving any of 16 numbers by one ulp."""
    base = random_rows(1, 24, dtype).view(BITS[dtype.itemsize])
    choices = (torch.arange(2**16)[:, None] >> torch.arange(16)) & 1
    rows = base.repeat(2**16, 1)
    rows[:, 4:20] += choices.to(rows.dtype)
    assert len(path(rows.view(dtype)).hashes.unique()) == 2**16


def test_signs_of_any_two_numbers_count() -> None:
    """A sum modulo 2^64 keeps little of what happens in its high bits: where the signs are."""
    row = random_rows(1, 256).abs()
    pairs = torch.combinations(torch.arange(256))
    rows = row.repeat(len(pairs) + 2, 1)
    rows[torch.arange(len(pairs))[:, None], pairs] *= -1
    rows[-1] *= -1
    assert len(sketch(rows).hashes.unique()) == len(rows)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_zeros_and_nans_of_other_bits_differ(dtype: torch.dtype) -> None:
    zero = torch.zeros(1, 8, dtype=dtype)
    nan = torch.full((1, 8), torch.nan, dtype=dtype)
    assert not equal_rows(sketch(-zero), sketch(zero))
    assert not equal_rows(sketch(flip(nan, 0, 3, 0)), sketch(nan))
    assert equal_rows(sketch(nan), sketch(nan.clone()))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_rows_and_rows_of_zeros(path: Path, dtype: torch.dtype) -> None:
    none = path(torch.empty(0, 96, dtype=dtype))
    assert (none.hashes.shape, none.projection.shape) == ((0,), (0, 64))
    assert estimated_relative_error(none, none).shape == (0,)
    zeros = path(torch.zeros(3, 96, dtype=dtype))
    assert estimated_relative_error(zeros, zeros).tolist() == [0.0, 0.0, 0.0]
    assert not zeros.projection.any()


def test_views_are_sketched_like_copies() -> None:
    wide = random_rows(6, 515, torch.bfloat16)
    for view in (wide[:, 3:259], wide[1:, :514], wide.flatten()[1:3001].view(6, 500), wide.t()):
        found, expected = sketch(view), sketch(view.clone(memory_format=torch.contiguous_format))
        assert torch.equal(found.hashes, expected.hashes)
        assert torch.equal(found.projection, expected.projection)


def test_another_seed_is_another_sketch() -> None:
    rows = random_rows(4, 100)
    one, other = sketch(rows, 1), sketch(rows, 2)
    assert not equal_rows(one, other).any()
    assert not torch.isclose(one.projection, other.projection).all()


@pytest.mark.parametrize("hidden", [8, 8192])
def test_memory_is_as_stated(hidden: int) -> None:
    found = sketch(random_rows(10, hidden))
    assert found.hashes.nbytes + found.projection.nbytes == 10 * BYTES_PER_TOKEN


# --- the estimate ----------------------------------------------------------------------------------------------------


def with_error(rows: torch.Tensor, size: float, seed: int) -> torch.Tensor:
    """``rows`` moved by ``size`` times their length, each in a direction of its own, as near as the dtype allows."""
    error = random_rows(*rows.shape, torch.float64, seed)
    lengths = rows.double().norm(dim=-1, keepdim=True) / error.norm(dim=-1, keepdim=True)
    return (rows.double() + size * lengths * error).to(rows.dtype)


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    return (found.double() - expected.double()).norm(dim=-1) / expected.double().norm(dim=-1)


SIZES = [1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7]


@pytest.mark.slow
@pytest.mark.parametrize("outliers", [0, 4])
@pytest.mark.parametrize("hidden", [64, 1000, 4096])
def test_the_estimate_is_as_good_as_stated(hidden: int, outliers: int) -> None:
    """Over matrices, rows and errors; ``outliers``: columns 30 times as large as the others, as models have them."""
    ratios = []
    for seed in range(25):
        rows = random_rows(40, hidden, seed=seed)
        rows[:, torch.randperm(hidden, generator=torch.Generator().manual_seed(seed))[:outliers]] *= 30
        expected = sketch(rows, seed)
        for number, size in enumerate(SIZES):
            found = with_error(rows, size, 1000 + 10 * seed + number)
            truth, estimate = relative_error(found, rows), estimated_relative_error(sketch(found, seed), expected)
            assert (estimate <= 2 * truth + ESTIMATE_FLOOR).all()
            assert (estimate >= truth / 2 - ESTIMATE_FLOOR).all()
            if size > 10 * ESTIMATE_FLOOR:
                ratios.append(estimate / truth)
    ratio = torch.cat(ratios)
    assert abs(ratio.mean() - 1) < 0.03
    assert ratio.std() < 0.15


@pytest.mark.parametrize("hidden", [256, 8192])
def test_the_length_is_not_biased(hidden: int) -> None:
    squares = torch.cat(
        [
            sketch(rows, seed).projection.square().sum(dim=-1) / rows.square().sum(dim=-1)
            for seed in range(100)
            for rows in [random_rows(50, hidden, seed=seed)]
        ]
    )
    assert abs(squares.mean() - 1) < 0.01
    assert squares.std() < 0.2


@pytest.mark.parametrize(
    "columns",
    [slice(None), slice(0, 1024), slice(None, None, 32), slice(5, None, 256), slice(0, 24)],
    ids=["all", "a quarter", "each 32nd", "each 256th", "the first"],
)
def test_regular_errors_are_estimated_like_random_ones(columns: slice) -> None:
    """The same error in columns a pattern picks, as a fault makes it: without random signs and offsets it adds up."""
    error = torch.zeros(1, 4096)
    error[0, columns] = 1.0
    squares = torch.tensor([sketch(error, seed).projection.square().sum() / error.sum() for seed in range(300)])
    assert abs(squares.mean() - 1) < 0.06
    assert squares.std() < 0.25
    assert squares.min() > 0.25


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_estimate_between_dtypes(dtype: torch.dtype) -> None:
    rows = random_rows(200, 2048)
    estimate = estimated_relative_error(sketch(rows.to(dtype)), sketch(rows))
    truth = relative_error(rows.to(dtype), rows)
    assert abs((estimate / truth).mean() - 1) < 0.05


@properties
@given(st.integers(1, 3000), st.data())
def test_an_error_in_one_column_is_measured_exactly(hidden: int, data: st.DataObject) -> None:
    rows = torch.ones(1, hidden)
    wrong = rows.clone()
    wrong[0, data.draw(st.integers(0, hidden - 1))] += 0.5
    length = sketch(rows).projection.double().norm().item()
    assert estimated_relative_error(sketch(wrong), sketch(rows)).item() == pytest.approx(0.5 / length, rel=1e-4)


@properties
@given(st.integers(2, 256), st.data())
def test_errors_in_two_columns_of_a_block_never_cancel(hidden: int, data: st.DataObject) -> None:
    one, other = data.draw(st.lists(st.integers(0, hidden - 1), min_size=2, max_size=2, unique=True))
    rows = torch.zeros(1, hidden)
    rows[0, one], rows[0, other] = 1.0, data.draw(st.sampled_from([1.0, -1.0]))
    assert 0.99 < sketch(rows).projection.norm().item() < 1.74


def test_the_projection_is_linear() -> None:
    one, other = random_rows(30, 900, seed=1), random_rows(30, 900, seed=2)
    combined = sketch(2 * one - other).projection
    assert torch.allclose(combined, 2 * sketch(one).projection - sketch(other).projection, atol=1e-4)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("hidden", [5, 700])
def test_what_is_not_finite_is_never_a_small_error(path: Path, dtype: torch.dtype, value: float, hidden: int) -> None:
    rows = random_rows(hidden, hidden, dtype)
    broken = rows.clone().fill_diagonal_(value)
    good, bad = path(rows), path(broken)
    assert not equal_rows(bad, good).any()
    for found, expected in ((bad, good), (good, bad), (bad, bad)):
        assert not estimated_relative_error(found, expected).isfinite().any()


def test_large_and_small_rows_keep_their_error() -> None:
    rows = random_rows(50, 512)
    found = with_error(rows, 1e-2, 5)
    for factor in (2.0**100, 2.0**-100):
        truth, estimate = (
            relative_error(found, rows),
            estimated_relative_error(sketch(found * factor), sketch(rows * factor)),
        )
        assert torch.allclose(estimate, truth, rtol=0.6)
    assert not estimated_relative_error(sketch(torch.full((1, 512), 3e38)), sketch(rows[:1])).isfinite()


def test_against_rows_of_zeros() -> None:
    zero, one = torch.zeros(1, 40), torch.ones(1, 40)
    assert estimated_relative_error(sketch(one), sketch(zero)).item() == torch.inf
    assert estimated_relative_error(sketch(-zero), sketch(zero)).isnan()
    assert estimated_relative_error(sketch(zero), sketch(one)).item() == 1.0


def test_products_are_in_float32_whatever_the_engine_has_set() -> None:
    rows = random_rows(64, 1024)
    expected = sketch_in_torch(rows, 0).projection
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        found = sketch_in_torch(rows, 0).projection
        assert torch.get_float32_matmul_precision() == "medium"
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(found, expected)


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [torch.ones(3), torch.ones(2, 2, 2), torch.ones(2, 2, dtype=torch.int64)], ids=str)
def test_what_is_no_matrix_of_numbers_is_refused(rows: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="rows × hidden floating-point numbers, not of"):
        sketch(rows)


def test_sketches_of_different_rows_are_refused() -> None:
    one, other = sketch(torch.ones(3, 4)), sketch(torch.ones(1, 4))
    for compare in (equal_rows, estimated_relative_error):
        with pytest.raises(ValueError, match="of 3 and of 1 rows cannot be compared"):
            compare(one, other)
