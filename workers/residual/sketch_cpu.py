"""The sketch's inner loops for the CPU: each row is read once. Same hashes as the formulation in PyTorch, bit by bit.

Numba comes with vLLM. The first call compiles, which takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

import numba  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray

from workers.residual.sketch_tables import BLOCK_WORDS, BUCKETS, HALF, MULTIPLIERS, RUNS, SCALE, SHIFT, TURN

Array: TypeAlias = NDArray[Any]
Add: TypeAlias = Callable[[Array, Array, Array], None]
Sketcher: TypeAlias = Callable[[Array, Array, Array, Array, Array, Array, Array, Array, Array], None]
Function = TypeVar("Function", bound=Callable[..., Any])

_FIRST, _SECOND = (np.uint64(multiplier) for multiplier in MULTIPLIERS)
_BITS = np.uint64(SHIFT)
_SCALE = np.float32(SCALE)


def _compiled(function: Function) -> Function:
    """Without the interpreter's lock. A product and its sum may be one instruction: the product with ±1 is exact."""
    return cast(Function, numba.njit(nogil=True, fastmath={"contract"})(function))


@_compiled
def _mix(value: Any) -> Any:
    bits = np.uint64(value)
    bits = (bits ^ (bits >> _BITS)) * _FIRST
    bits = (bits ^ (bits >> _BITS)) * _SECOND
    return np.int64(bits ^ (bits >> _BITS))


@_compiled
def _hash(words: Array, first: Array, second: Array, outer: Array) -> Any:
    total = np.int64(0)
    for block in range(len(outer)):
        part = words[block * BLOCK_WORDS : (block + 1) * BLOCK_WORDS]
        one, two = np.int64(0), np.int64(0)
        for i in range(len(part)):
            word = np.int64(part[i])
            one += word * first[i]
            two += word * second[i]
        total += _mix(one ^ _mix(two)) * outer[block]
    return total


@_compiled
def _add_float32(sums: Array, values: Array, signs: Array) -> None:
    for i in range(len(values)):
        sums[i] += values[i] * signs[i]


@_compiled
def _add_bfloat16(sums: Array, values: Array, signs: Array) -> None:
    """A bfloat16 is the upper half of the float32 of the same value."""
    for i in range(len(values)):
        sums[i] += np.uint32(np.uint32(values[i]) << np.uint32(16)).view(np.float32) * signs[i]


@_compiled
def _collect(sums: Array, turned: Array, numbers: Array) -> None:
    """The buckets, ``sums`` and what lies beyond their end, added up to the numbers of the projection."""
    turned[:] = 0
    for i in range(BUCKETS):
        sums[i] += sums[BUCKETS + i]
    for run in range(RUNS):
        for i in range(HALF):
            turned[run * TURN + i] += sums[run * HALF + i]
    for i in range(HALF):
        total = np.float32(0)
        for run in range(RUNS):
            total += sums[run * HALF + i]
        numbers[i] = total * _SCALE
        numbers[HALF + i] = (turned[i] + turned[HALF + i]) * _SCALE


def _sketcher(add: Add) -> Sketcher:
    """Fill ``hashes`` and ``projection`` of all rows; ``add`` reads one block of a row's values."""

    @_compiled
    def sketch_rows(
        words: Array,
        values: Array,
        first: Array,
        second: Array,
        outer: Array,
        signs: Array,
        offsets: Array,
        hashes: Array,
        projection: Array,
    ) -> None:
        rows, hidden = values.shape
        # Twice as long as what they end up in: what is moved to the right by an offset needs no second piece.
        sums = np.empty(2 * BUCKETS, np.float32)
        turned = np.empty(2 * HALF, np.float32)
        for row in range(rows):
            hashes[row] = _hash(words[row], first, second, outer)
            sums[:] = 0
            for block in range(len(offsets)):
                start = block * BUCKETS
                end = min(start + BUCKETS, hidden)
                add(sums[offsets[block] :], values[row][start:end], signs[start:end])
            _collect(sums, turned, projection[row])

    return sketch_rows


sketch_float32 = _sketcher(_add_float32)
"""Values as float32, rows × hidden."""
sketch_bfloat16 = _sketcher(_add_bfloat16)
"""Values as the uint16 of a bfloat16, rows × hidden."""
