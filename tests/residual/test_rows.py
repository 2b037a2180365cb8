"""Whole rows and sketches answer the same questions, and give the same answers as far as a sketch can tell."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.protocol import SKETCH_NUMBERS
from workers.residual.rows import Rows, SketchRows, WholeRows, rows_of
from workers.residual.sketch import sketch

ROWS = torch.randn(6, 48, generator=torch.Generator().manual_seed(0))


def both(rows: torch.Tensor) -> tuple[Rows, Rows]:
    return rows_of(rows), rows_of(sketch(rows))


def test_a_recording_is_read_as_what_it_is() -> None:
    whole, kept = both(ROWS)
    assert isinstance(whole, WholeRows)
    assert isinstance(kept, SketchRows)
    assert (len(whole), len(kept), whole.width, kept.width) == (6, 6, 48, SKETCH_NUMBERS)
    assert (whole.dtype, kept.dtype) == (torch.float32, None)
    assert kept.digits > whole.digits


@settings(deadline=None, max_examples=60)
@given(st.sets(st.integers(0, 5)), st.sampled_from([1e-3, 0.1, 2.0]))
def test_both_find_the_rows_that_differ_and_by_how_much(wrong: set[int], size: float) -> None:
    index = sorted(wrong)
    spoiled = ROWS.clone()
    spoiled[index] *= 1 + size
    for found, expected in zip(both(spoiled), both(ROWS), strict=True):
        assert found.equal(expected) is (not wrong)
        held = found.hold(expected)
        assert (~held.equal).nonzero().flatten().tolist() == index
        assert all(held.error[row].item() == pytest.approx(size, rel=1e-2) for row in index)
        assert held.distance is not None
        assert (held.distance > 0) is bool(wrong)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_infinitely_wrong_and_equals_nothing(value: float) -> None:
    spoiled = ROWS.clone()
    spoiled[2, 7] = value
    for found, expected in zip(both(spoiled), both(ROWS), strict=True):
        held = found.hold(expected)
        assert (held.worst, held.distance, found.finite()) == (math.inf, None, False)
        assert held.error[[0, 1, 3, 4, 5]].tolist() == [0.0] * 5
        assert not found.equal(expected)
    assert all(rows.finite() for rows in both(ROWS))
    spoiled[2, 7] = math.nan
    assert not any(rows.equal(rows) for rows in both(spoiled))


def test_against_zeros_any_number_is_infinitely_wrong() -> None:
    for found, expected in zip(both(ROWS), both(torch.zeros_like(ROWS)), strict=True):
        assert found.hold(expected).worst == math.inf
        assert (found.zero(), expected.zero()) == (False, True)
        assert expected.hold(expected).worst == 0.0


@settings(deadline=None, max_examples=40)
@given(st.permutations(range(6)), st.integers(0, 6), st.integers(0, 6))
def test_parts_and_choices_of_rows(order: list[int], start: int, stop: int) -> None:
    index = torch.tensor(order)
    for rows, moved in zip(both(ROWS), both(ROWS[index]), strict=True):
        assert rows.take(index).equal(moved)
        assert moved.nearest(rows).tolist() == order
        cut = rows.part(start, stop)
        assert len(cut) == max(0, stop - start)
        assert cut.equal(rows.take(torch.arange(start, max(start, stop))))


def test_numbers_are_linear_in_the_rows() -> None:
    for one, other, combined in zip(both(ROWS), both(ROWS.flip(0)), both(2 * ROWS - ROWS.flip(0)), strict=True):
        assert torch.allclose(combined.numbers(), 2 * one.numbers() - other.numbers(), atol=1e-5)


def test_kinds_are_not_mixed() -> None:
    whole, kept = both(ROWS)
    for one, other in ((whole, kept), (kept, whole)):
        assert not one.comparable(other)
        assert not one.equal(other)
        with pytest.raises(ValueError, match="cannot be held against"):
            one.hold(other)
    assert not whole.comparable(rows_of(ROWS[:, :40]))
    assert whole.comparable(rows_of(ROWS[:2]))


def test_a_reference_in_full_precision() -> None:
    low, high = ROWS.bfloat16(), ROWS
    assert rows_of(low).equal(rows_of(low.float()))
    assert not rows_of(low).equal(rows_of(high))
    assert 0 < rows_of(low).hold(rows_of(high)).worst < torch.finfo(torch.bfloat16).eps


def test_no_rows() -> None:
    for rows in both(ROWS[:0]):
        assert rows.equal(rows)
        assert (rows.hold(rows).worst, rows.hold(rows).distance, rows.finite(), rows.zero()) == (0.0, 0.0, True, True)
        assert rows.nearest(rows_of(ROWS) if isinstance(rows, WholeRows) else rows_of(sketch(ROWS))).tolist() == []
