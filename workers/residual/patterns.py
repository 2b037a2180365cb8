"""Name the way in which a rank's residual is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from workers.residual.rows import Rows

LOOKED_AT = 256
"""Wrong rows that arithmetic is tried on: enough to tell, and few enough to hold in full precision."""

SLACK = 4
"""Arithmetic on rows may be off by so many last digits."""

ROUNDING = "rounding"

PLAIN = 100
"""What a site adds must be so many times larger than the slack, or nothing can be said of how it was added."""


@dataclass(frozen=True)
class Sight:
    """What can be seen of a wrong residual. Rows of padding are left out.

    ``got`` is what rank ``rank`` holds, of which the rows ``wrong`` are not right; ``slices[j]`` is what belongs to
    rank j, ``whole`` all tokens, of which this rank's begin at ``start``. ``before``: what belongs to this rank at the
    site before. ``earlier``: what this rank held at this site in other steps, nearest first, each by its number.
    ``copies``: what each rank holds, where each should hold all. ``close``: up to this relative error rows are taken
    for the same; ``rounding``: up to this a difference may be one of rounding.
    """

    got: Rows
    wrong: torch.Tensor
    slices: Sequence[Rows]
    rank: int
    whole: Rows
    start: int = 0
    before: tuple[str, Rows] | None = None
    earlier: Sequence[tuple[int, Rows]] = ()
    copies: Sequence[Rows] = field(default=())
    close: float = 0.0
    rounding: float = 0.0

    @property
    def expected(self) -> Rows:
        return self.slices[self.rank]

    @property
    def some(self) -> torch.Tensor:
        return self.wrong[:LOOKED_AT]


def name_pattern(sight: Sight) -> str:
    """What the rank holds instead of its own part, in a word; see ``docs/verdicts.md`` for each."""
    found = (look(sight) for look in LOOKS)
    return next((name for name in found if name is not None), "values")


def _nan(sight: Sight) -> str | None:
    return None if sight.got.take(sight.wrong).finite() else "nan"


def _zeros(sight: Sight) -> str | None:
    return "zeros" if sight.got.take(sight.wrong).zero() else None


def _rounding(sight: Sight) -> str | None:
    held = sight.got.take(sight.wrong).hold(sight.expected.take(sight.wrong))
    return ROUNDING if held.worst <= sight.rounding else None


def _slice(sight: Sight) -> str | None:
    for other, expected in enumerate(sight.slices):
        rows = sight.wrong[sight.wrong < len(expected)]
        if other != sight.rank and _same(sight, rows, expected, rows):
            return f"slice-of-rank-{other}"
    return None


def _shifted(sight: Sight) -> str | None:
    for places in (1, -1):
        source = sight.start + sight.wrong - places
        inside = (source >= 0) & (source < len(sight.whole))
        rows = sight.wrong[inside]
        # The row that went over the edge came from elsewhere.
        enough = len(rows) >= max(2, len(sight.wrong) - 1)
        if enough and _same(sight, rows, sight.whole, source[inside]):
            return "shifted-by-a-token"
    return _rolled(sight)


def _rolled(sight: Sight) -> str | None:
    """One place on within the rank's own part, whose last row came to its front (or its first to its end)."""
    for places in (1, -1):
        source = sight.wrong - places
        inside = (source >= 0) & (source < len(sight.expected))
        rows = sight.wrong[inside]
        if len(rows) >= max(2, len(sight.wrong) - 1) and _same(sight, rows, sight.expected, source[inside]):
            return "shifted-by-a-token"
    return None


def _stale(sight: Sight) -> str | None:
    for step, rows in sight.earlier:
        within = bool((sight.wrong < len(rows)).all())
        if within and _same(sight, sight.wrong, rows, sight.wrong):
            return f"stale-of-step-{step}"
    if sight.before is None:
        return None
    site, rows = sight.before
    return f"stale-of-site-{site}" if _same(sight, sight.wrong, rows, sight.wrong) else None


def _moved(sight: Sight) -> str | None:
    mine = sight.got.take(sight.some)
    source = mine.nearest(sight.whole)
    if not _same(sight, sight.some, sight.whole, source):
        return None
    own = sight.start + sight.some
    return "permuted" if torch.equal(source.sort().values, own.sort().values) else "rows-of-other-tokens"


def _scaled(sight: Sight) -> str | None:
    got, expected = (rows.take(sight.some).numbers() for rows in (sight.got, sight.expected))
    for name, factor in (("doubled", 2.0), ("halved", 0.5), ("negated", -1.0)):
        if _alike(sight, got, factor * expected):
            return name
    return None


def _added(sight: Sight) -> str | None:
    """What this site added to the residual is the right sum, a wrong number of times."""
    if sight.before is None:
        return None
    rows = (sight.got, sight.expected, sight.before[1])
    got, expected, before = (item.take(sight.some).numbers() for item in rows)
    added = expected - before
    if float(added.norm()) < PLAIN * _slack(sight) * float(expected.norm()):
        return None
    ranks = len(sight.slices)
    for name, times in (("reduced-twice", ranks), ("averaged", 1 / ranks), ("added-twice", 2), ("subtracted", -1)):
        if _alike(sight, got, before + times * added):
            return name
    return None


def _unreduced(sight: Sight) -> str | None:
    """Each rank added its own share alone: together they make the whole."""
    if sight.before is None or len(sight.copies) < 2:
        return None
    expected, before = (rows.take(sight.some).numbers() for rows in (sight.expected, sight.before[1]))
    shares = [rows.take(sight.some).numbers() - before for rows in sight.copies]
    return "unreduced" if _alike(sight, before + torch.stack(shares).sum(dim=0), expected) else None


Look = Callable[[Sight], str | None]

LOOKS: tuple[Look, ...] = (
    _nan,
    _zeros,
    _rounding,
    _slice,
    _stale,
    _shifted,
    _moved,
    _scaled,
    _added,
    _unreduced,
)


def _same(sight: Sight, rows: torch.Tensor, other: Rows, source: torch.Tensor) -> bool:
    """The rank's ``rows`` are the rows ``source`` of ``other``, and there are any."""
    if not len(rows):
        return False
    held = sight.got.take(rows).hold(other.take(source))
    return bool((held.equal | (held.error <= sight.close)).all())


def _slack(sight: Sight) -> float:
    return max(sight.close, SLACK * sight.got.digits)


def _alike(sight: Sight, got: torch.Tensor, expected: torch.Tensor) -> bool:
    return float((got - expected).norm()) <= _slack(sight) * float(expected.norm())
