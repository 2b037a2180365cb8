"""The loops of :mod:`workers.residual.measure` for the CPU: every row of both tensors is read once.

Numba comes with vLLM. The first call for a pair of dtypes compiles, which takes about a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import numba  # type: ignore[import-untyped]
import numpy as np
import torch
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Wide: TypeAlias = Callable[[Any], Any]
Measurer: TypeAlias = Callable[[Array, Array, Array, Array, Array, Array, Array], None]

Function = TypeVar("Function", bound=Callable[..., Any])


def _compiled(function: Function) -> Function:
    """Without the interpreter's lock. Sums may be taken in any order, which vector instructions need.

    Nothing else is given away for speed: a NaN or an infinity stays what it is.
    """
    return cast(Function, numba.njit(nogil=True, fastmath={"contract", "reassoc"})(function))


@_compiled
def _float32(value: Any) -> Any:
    return np.float64(value)


@_compiled
def _bfloat16(value: Any) -> Any:
    """A bfloat16 is the upper half of the float32 of the same value."""
    return np.float64(np.uint32(np.uint32(value) << np.uint32(16)).view(np.float32))


def _measurer(found_as: Wide, expected_as: Wide) -> Measurer:
    @_compiled
    def sums(found: Array, expected: Array) -> Any:
        difference, size = 0.0, 0.0
        for i in range(len(found)):
            y = expected_as(expected[i])
            d = found_as(found[i]) - y
            difference += d * d
            size += y * y
        return difference, size

    @_compiled
    def look(found: Array, expected: Array) -> Any:
        """Number by number: a sum that is not finite says neither which number it is nor whether both have it."""
        equal, finite = True, True
        for i in range(len(found)):
            x, y = found_as(found[i]), expected_as(expected[i])
            equal = equal and x == y
            finite = finite and np.isfinite(x) and np.isfinite(y)
        return equal, finite

    @_compiled
    def measure_rows(
        found: Array, expected: Array, equal: Array, finite: Array, error: Array, size: Array, relative: Array
    ) -> None:
        for row in range(len(found)):
            squares, of_expected = sums(found[row], expected[row])
            error[row], size[row] = np.sqrt(squares), np.sqrt(of_expected)
            equal[row], finite[row] = squares == 0.0, True
            if not (np.isfinite(squares) and np.isfinite(of_expected)):
                equal[row], finite[row] = look(found[row], expected[row])
            relative[row] = np.inf
            if finite[row] and equal[row]:
                relative[row] = 0.0
            elif finite[row] and size[row] > 0.0:
                relative[row] = error[row] / size[row]

    return measure_rows


_READ = {torch.float32: _float32, torch.bfloat16: _bfloat16}
_MEASURERS = {(one, other): _measurer(_READ[one], _READ[other]) for one in _READ for other in _READ}

AS_THEY_ARE = frozenset(_READ)
"""What the loops read without a conversion before."""


def measure_rows(found: torch.Tensor, expected: torch.Tensor, into: Sequence[torch.Tensor]) -> None:
    """Fill ``into``, one element per row: equal and finite (bool), then in float64 ‖found - expected‖, ‖expected‖ and
    the one divided by the other.

    ``found`` and ``expected`` are contiguous, rows × hidden, each of a type in ``AS_THEY_ARE``.
    """
    loops = _MEASURERS[found.dtype, expected.dtype]
    loops(_array(found), _array(expected), *(tensor.numpy() for tensor in into))


def _array(value: torch.Tensor) -> Array:
    """NumPy knows no bfloat16."""
    return (value.view(torch.uint16) if value.dtype == torch.bfloat16 else value).numpy()


@_compiled
def _same_words(one: Array, other: Array, exponent: Any, last: Any, carry: Any) -> Any:
    for row in range(len(one)):
        differing, special = np.uint64(0), np.uint64(0)
        for i in range(one.shape[1]):
            word = one[row, i]
            differing |= word ^ other[row, i]
            special |= ((word & exponent) + last) & carry
        if differing | special:
            return False
    return True


def same_numbers(one: torch.Tensor, other: torch.Tensor) -> bool:
    """All bits agree and no element is NaN or infinite. Both contiguous, of one type and whole words of 64 bits a row.

    An exponent is that of a NaN or an infinity when adding one to its last bit carries into the sign, which was masked.
    """
    words = [tensor.view(torch.int64).numpy().view(np.uint64) for tensor in (one, other)]
    return bool(_same_words(*words, *_EXPONENTS[one.dtype]))


def _exponent(first: int, bits: int) -> tuple[Any, ...]:
    """Masks for a word of numbers of ``bits`` each: the exponents, starting at bit ``first``, that bit, the signs."""
    sign = 1 << (bits - 1)
    everywhere = sum(1 << shift for shift in range(0, 64, bits))
    return tuple(np.uint64(part * everywhere) for part in (sign - (1 << first), 1 << first, sign))


_EXPONENTS = {
    torch.float64: _exponent(52, 64),
    torch.float32: _exponent(23, 32),
    torch.float16: _exponent(10, 16),
    torch.bfloat16: _exponent(7, 16),
}
