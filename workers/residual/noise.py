"""The noise floor, measured: how far rounding alone moves the residual of a token.

The replicated arm is run again with its embedding scaled by 1 ± eps per element, from several seeds. What that changes
at a site is what a right engine may differ by there; less cannot be told from rounding. The floor of a site is the
largest relative error of any token, step and run: a token on which rounding had little effect in a handful of runs is
no place where it could have none, and the few tokens of a plan are all draws from one distribution.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from workers.residual.rows import rows_of
from workers.residual.taps import TapSet

Run = tuple[TapSet, frozenset[int]]
"""A recording, and the steps in which it was given the same tokens as the one it is held against."""


def measured_floor(plain: TapSet, perturbed: Sequence[Run], sites: int) -> tuple[float, ...] | None:
    """Per site the largest relative error of a token of any perturbed run in any step; ``None`` without a usable run.

    Rank 0 is looked at: what the ranks of a replicated arm hold differs by less.
    """
    usable = [(run, steps) for run, steps in perturbed if run.tokens == plain.tokens and steps]
    if not usable:
        return None
    return tuple(max(_errors(plain, usable, site), default=0.0) for site in range(sites))


def _errors(plain: TapSet, perturbed: Sequence[Run], site: int) -> Iterator[float]:
    for run, steps in perturbed:
        for step in sorted(steps):
            got, expected = run.at(0, step, site), plain.at(0, step, site)
            if got is not None and expected is not None:
                tokens = plain.tokens[step]
                yield rows_of(got).part(0, tokens).hold(rows_of(expected).part(0, tokens)).worst


def distances(subject: TapSet, reference: TapSet, sites: int, steps: frozenset[int]) -> tuple[float, ...] | None:
    """Per site how far the farthest token of ``subject``'s rank 0 is from ``reference``, over ``steps``."""
    return measured_floor(reference, [(subject, steps)], sites)
