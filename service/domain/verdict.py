"""Verdicts and their gravity."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """What was found about a cell, gravest first: of several findings the first in this order is the verdict."""

    CRASHED = "crashed"
    TIMED_OUT = "timed-out"
    FAIL_RESIDUAL = "fail-residual"
    FAIL_OUTPUT = "fail-output"
    FAIL_GUARD = "fail-guard"
    INVALID_MEASUREMENT = "invalid-measurement"
    UNSUPPORTED = "unsupported"
    NOT_EXERCISED = "not-exercised"
    REGRESSION = "regression"
    DOWNGRADED = "downgraded"
    DUPLICATE = "duplicate"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    PASS = "pass"

    @property
    def gravity(self) -> int:
        """0 for the gravest."""
        return _ORDER[self]


_ORDER = {verdict: place for place, verdict in enumerate(Verdict)}
