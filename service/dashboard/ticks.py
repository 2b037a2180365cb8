"""Where an axis has its ticks. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

_DAYS = (1, 2, 7, 14, 30, 91, 182, 365)
_STEPS = (1.0, 2.0, 5.0, 10.0)


def of_values(low: float, high: float, about: int = 5) -> list[float]:
    """Round values in [``low``, ``high``], some ``about`` of them."""
    if not high > low:
        return [low]
    raw = (high - low) / about
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * step for step in _STEPS if unit * step >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(place * step, 12) for place in range(first, last + 1)]


def of_decades(low: float, high: float) -> list[float]:
    """Ones, twos and fives of each decade in [``low``, ``high``], both above zero; over many decades the ones alone."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = _STEPS[:3] if high / low <= 1000 else _STEPS[:1]
    values = [step * 10.0**decade for decade in range(first, last + 1) for step in steps]
    found = [value for value in values if low <= value <= high]
    return found if len(found) > 1 else of_values(low, high)


def of_times(begin: datetime, end: datetime, about: int = 6) -> list[datetime]:
    """Midnights (UTC) in [``begin``, ``end``], some ``about`` of them; within two days whole parts of the stretch."""
    span = end - begin
    if span < timedelta(days=2):
        return [begin + span * part / 4 for part in range(5)] if span else [begin]
    days = next((days for days in _DAYS if span / timedelta(days=days) <= about), None)
    return list(_midnights(begin, end, days or math.ceil(span.days / about)))


def _midnights(begin: datetime, end: datetime, days: int) -> Iterator[datetime]:
    first = begin.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    moment = first if first == begin else first + timedelta(days=1)
    while moment <= end:
        yield moment
        moment += timedelta(days=days)
