"""The noise floor, measured: how far rounding alone moves the residual.

The replicated arm is run again with its embedding scaled by 1 ± eps per element, from several seeds. What that changes
at a site is what a right engine may differ by there; less cannot be told from rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

from workers.residual.compare import relative_error
from workers.residual.taps import TapSet


def measured_floor(plain: TapSet, perturbed: Sequence[TapSet], sites: int) -> tuple[float, ...] | None:
    """Per site the largest relative error of any perturbed run in any step; ``None`` without a usable run.

    Rank 0 is looked at: every rank of a replicated arm holds the same.
    """
    usable = [run for run in perturbed if run.tokens == plain.tokens]
    if not usable or not plain.tokens:
        return None
    return tuple(max(_errors(plain, usable, site), default=0.0) for site in range(sites))


def _errors(plain: TapSet, perturbed: Sequence[TapSet], site: int) -> list[float]:
    errors = []
    for step, tokens in enumerate(plain.tokens):
        expected = plain.at(0, step, site)
        for run in perturbed:
            got = run.at(0, step, site)
            if got is not None and expected is not None:
                errors.append(relative_error(got[:tokens], expected[:tokens]))
    return errors


def distances(subject: TapSet, reference: TapSet, sites: int) -> tuple[float, ...] | None:
    """Per site how far ``subject``'s rank 0 is from ``reference`` in its worst step; ``None`` when the steps differ."""
    return measured_floor(reference, [subject], sites)
