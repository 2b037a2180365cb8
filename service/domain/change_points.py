"""Where the level of a figure changed, seen from today: for pages and for what is said of a whole year.

The rules of ``regression`` have to say something each night and know nothing of the next. Looking back, all nights can
be weighed at once: ``ruptures``, a maintained library for that, finds the levels that explain the nights best, each
further level at a price.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

_TO_SIGMA = 1.4826
_LEAST_NOISE = 0.005
_LEAST = 3
"""A level lasts for so many nights, or it is a spike; the first and the last one may lack one of them."""

PRICE = 4.0
"""Of a further level, in units of σ² · ln(nights). About 2 to 3 is the least that theory asks for."""


@dataclass(frozen=True)
class Change:
    """``index``: of the first value at the new level. ``before``, ``after``: medians of the two levels."""

    index: int
    before: float
    after: float


def change_points(values: Sequence[float], least: float = 0.03) -> list[Change]:
    """Changes of level in ``values``, in time order; those smaller than ``least``, as a part, are left out."""
    return list(_changes(tuple(values), least))


# A page asks for the same nights again and again, and each time would look through all of them.
@lru_cache(maxsize=256)
def _changes(values: tuple[float, ...], least: float) -> tuple[Change, ...]:
    if len(values) < 2 * _LEAST:
        return ()
    # Here, since it takes a second to import and most commands never look back.
    import numpy
    from ruptures import KernelCPD

    logs = numpy.log(numpy.maximum(numpy.asarray(values, dtype=float), 1e-9))
    price = PRICE * _noise(logs.tolist()) ** 2 * math.log(len(values))
    ends = KernelCPD(kernel="linear", min_size=_LEAST, jump=1).fit(logs.reshape(-1, 1)).predict(pen=price)
    found: list[Change] = []
    begin = 0
    for cut, end in pairwise(ends):
        index = _begin_of(values, begin, cut, end)
        before, after = statistics.median(values[begin:index]), statistics.median(values[index:end])
        if abs(math.log(after / before)) >= math.log1p(least) if before > 0 and after > 0 else before != after:
            found.append(Change(index, before, after))
            begin = index
    return tuple(found)


def _begin_of(values: Sequence[float], begin: int, cut: int, end: int) -> int:
    """Where the level begins that was found from ``cut`` to ``end``, after the one that begins at ``begin``.

    A level that is only just long enough may have been given nights of its neighbour, which would name another night,
    and other versions, for the change.
    """
    before, after = statistics.median(values[begin:cut]), statistics.median(values[cut:end])
    if end - cut == _LEAST:
        while cut < end - 1 and abs(values[cut] - before) < abs(values[cut] - after):
            cut += 1
    elif cut - begin == _LEAST:
        while cut > begin + 1 and abs(values[cut - 1] - after) < abs(values[cut - 1] - before):
            cut -= 1
    return cut


def _noise(logs: Sequence[float]) -> float:
    """Of one night, from neighbours: a change of level moves one difference among many."""
    steps = [abs(later - earlier) for earlier, later in pairwise(logs)]
    return max(_TO_SIGMA * statistics.median(steps) / math.sqrt(2), _LEAST_NOISE)
