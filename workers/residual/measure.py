"""The few questions a comparison asks of its tensors, each in as few passes over memory as it takes.

:func:`rows` answers all that is asked of two tensors row by row, reading both once. The others look at blocks of rows
that stay in a core's cache, and at words of the processor's width where only bits matter.

*Error of the norms.* Numbers of float32 and of shorter types are subtracted, squared and added up in float64. No square
is lost or too large there, so the norms of finite rows are finite, and zero only for a difference of zero. Each square
is off by a relative 2^-51 at most and each of the ``hidden`` sums by 2^-53: the relative error of a norm is below
``hidden`` · 2^-53 + 2^-51, which is 1e-12 at 8192. Numbers of float64 are taken as they are; where their squares leave
the range of float64 the norms are of no use, ``equal`` and ``finite`` are right all the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from workers.residual.sketch import COMPILED_LOOPS, DTYPES

BLOCK_BYTES = 256 << 10
"""Of a tensor, at a time, where a step's results are kept in between: half of what a core's cache holds."""

DEVICE_BLOCK_BYTES = 64 << 20
"""The same on another device than the CPU, where a small block costs its launch."""

WORD = torch.int64


@dataclass(frozen=True, eq=False)
class RowMeasures:
    """What :func:`rows` found of each row x of ``found`` and y of ``expected``; all tensors of as many elements.

    ``equal`` (bool): every element equals the other, as ``torch.equal`` takes it: zeros of either sign are equal, a NaN
    equals nothing. ``finite`` (bool): neither row has a NaN or an infinity. ``error`` (float64): ‖x - y‖. ``size``
    (float64): ‖y‖; it is finite just where y is. Where ``finite`` is false, ``error`` is infinite or NaN. ``relative``
    (float64): ``error`` / ``size``; infinite where that is no number: a row is not finite, or y is zero and x is not.
    """

    equal: torch.Tensor
    finite: torch.Tensor
    error: torch.Tensor
    size: torch.Tensor
    relative: torch.Tensor


def rows(found: torch.Tensor, expected: torch.Tensor) -> RowMeasures:
    """Hold each row of ``found`` against that of ``expected``: rows × hidden, of any floating-point types.

    Works on the device the tensors are on, and leaves the result there. The first call for a pair of types on the CPU
    compiles, which takes about a second.

    Raises:
        ValueError: when they are not two matrices of one shape.
    """
    if found.dim() != 2 or found.shape != expected.shape:
        raise ValueError(f"rows of {list(found.shape)} numbers cannot be held against rows of {list(expected.shape)}")
    found, expected = found.detach(), expected.detach()
    if COMPILED_LOOPS and found.device.type == "cpu" and torch.float64 not in (found.dtype, expected.dtype):
        return _rows_on_cpu(found.contiguous(), expected.contiguous())
    return _rows_in_torch(found, expected)


def _rows_on_cpu(found: torch.Tensor, expected: torch.Tensor) -> RowMeasures:
    # Imported here: loading numba takes time, and it is there only with an engine.
    from workers.residual.measure_cpu import AS_THEY_ARE, measure_rows

    count = len(found)
    results = [torch.empty(count, dtype=torch.bool if number < 2 else torch.float64) for number in range(5)]
    if {found.dtype, expected.dtype} <= AS_THEY_ARE:
        measure_rows(found, expected, results)
    else:
        step = _block_rows(found, expected)
        for start in range(0, count, step):
            part = slice(start, start + step)
            wide = found[part].to(torch.float32), expected[part].to(torch.float32)
            measure_rows(*wide, [result[part] for result in results])
    return RowMeasures(*results)


def _rows_in_torch(found: torch.Tensor, expected: torch.Tensor) -> RowMeasures:
    step = _block_rows(found, expected)
    blocks = zip(torch.split(found, step), torch.split(expected, step), strict=True)
    parts = [_block_in_torch(one.double(), other.double()) for one, other in blocks]
    equal, finite, error, size = (torch.cat(column) for column in zip(*parts, strict=True))
    # Of zeros no number comes out either, but these are equal.
    relative = torch.where(equal, 0.0, error / size)
    relative = torch.where(finite & relative.isfinite(), relative, torch.inf)
    return RowMeasures(equal, finite, error, size, relative)


def _block_in_torch(found: torch.Tensor, expected: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        (found == expected).all(dim=-1),
        found.isfinite().all(dim=-1) & expected.isfinite().all(dim=-1),
        torch.linalg.vector_norm(found - expected, dim=-1),
        torch.linalg.vector_norm(expected, dim=-1),
    )


def finite(value: torch.Tensor) -> bool:
    """No element is NaN or infinite: the extremes tell, since NaN is passed on to them."""
    if value.numel() == 0:
        return True
    low, high = torch.aminmax(value)
    return math.isfinite(float(low)) and math.isfinite(float(high))


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal in shape and every element. Equal bits are the usual case and the cheap one; NaN equals nothing."""
    if one.shape != other.shape:
        return False
    if one.dtype == other.dtype and _in_words(one) and _in_words(other):
        return _same_numbers(one, other) or torch.equal(one, other)
    return torch.equal(one, other)


def _in_words(value: torch.Tensor) -> bool:
    whole = value.shape[-1] * value.element_size() % WORD.itemsize == 0
    aligned = value.storage_offset() * value.element_size() % WORD.itemsize == 0
    return value.numel() > 0 and value.is_contiguous() and whole and aligned


def _same_numbers(one: torch.Tensor, other: torch.Tensor) -> bool:
    on_cpu = one.device.type == other.device.type == "cpu"
    if COMPILED_LOOPS and on_cpu and one.dim() == 2 and one.dtype in DTYPES:
        from workers.residual.measure_cpu import same_numbers

        return same_numbers(one, other)
    return torch.equal(one.view(WORD), other.view(WORD)) and finite(one)


def _block_rows(one: torch.Tensor, other: torch.Tensor) -> int:
    size = BLOCK_BYTES if one.device.type == "cpu" else DEVICE_BLOCK_BYTES
    return max(1, size // max(1, one[:1].nbytes, other[:1].nbytes))
