"""When a figure of a series has become worse, or better: a pure function of its nights.

A *night* is the median of one sweep's repeats. The *baseline* is the median of the first nights that were steady; it
stays where it is until somebody accepts another or an improvement is confirmed, so that a slow drift is seen too. All
differences are taken of logarithms: twice as long is as far as half as long.

A night by itself makes nothing but a suspicion. Two nights in a row and more are held against the baseline together,
since their mean scatters less: ``n`` nights are a regression when their mean is above the baseline by the rules'
``ratio`` and the figure's floor, by ``strength`` standard errors of that difference, and above all but the highest
night of the baseline. The last keeps a series that jumps between two levels from being found over and over.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

_TO_SIGMA = 1.4826
"""A median of absolute deviations, times this, is the standard deviation of normal scatter."""

_OF_MEDIAN = math.pi / 2
"""The median of m values scatters like the mean of m / (pi / 2)."""

_SPIKE = 1.5

_SMALLEST = 1e-9
"""Stands for what took no time at all."""

_MOST = 700.0
"""A logarithm; a float holds hardly more."""


class Condition(StrEnum):
    """How a figure stands. ``suspected``: one night was beyond the bounds, and the next one will tell."""

    TOO_LITTLE_DATA = "too-little-data"
    STEADY = "steady"
    SUSPECTED = "suspected"
    REGRESSION = "regression"


class Turn(StrEnum):
    """What a night has made of the condition, where that is worth a word."""

    SUSPECTED = "suspected"
    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    RECOVERED = "recovered"


@dataclass(frozen=True)
class Rules:
    """``points``: nights before anything is said. ``window``: nights that the baseline is made of at most.

    ``nights``: so many in a row make a regression; up to ``together`` are held against the baseline at once. ``ratio``:
    a smaller change is none, as a part of the baseline. ``seconds``, ``bytes``: likewise, in the figure's unit.
    ``strength``: standard errors that a change must have. ``least_noise``: nothing scatters less than this.
    """

    points: int = 5
    window: int = 60
    nights: int = 2
    together: int = 4
    ratio: float = 0.05
    seconds: float = 0.5
    bytes: float = 64 * 2**20
    strength: float = 3.0
    least_noise: float = 0.01


DEFAULT_RULES = Rules()


class Night(NamedTuple):
    """``id``: of the point. ``at``: Unix time. A tuple, as a page makes thousands."""

    id: int
    at: float
    value: float


@dataclass(frozen=True)
class Baseline:
    """``noise``: standard deviation of one night, as a part of ``value``. ``first``: its first night.

    ``highest``, ``lowest``: its extreme nights but one, as logarithms of their ratio to ``value``.
    """

    value: float
    noise: float
    points: int
    first: Night
    highest: float
    lowest: float

    def error(self, nights: int) -> float:
        """Standard error of the difference between the mean of so many nights and the baseline."""
        return self.noise * math.sqrt(1 / nights + _OF_MEDIAN / self.points)


@dataclass(frozen=True)
class Judged:
    """A night, and how its series stands with it.

    ``missing``: nights until something can be said. ``lower``, ``upper``: a night beyond them is suspected. ``level``:
    the mean of the nights that are held against the baseline. ``since``: the first of them, while there are any.
    """

    night: Night
    condition: Condition
    baseline: Baseline | None
    first: Night
    points: int
    missing: int = 0
    lower: float | None = None
    upper: float | None = None
    level: float | None = None
    since: Night | None = None
    turn: Turn | None = None

    @property
    def ratio(self) -> float | None:
        """This night in units of the baseline; ``None`` where that took nothing."""
        return self.night.value / self.baseline.value if self.baseline and self.baseline.value > 0 else None

    @property
    def worse(self) -> bool:
        """Is this night itself nearer to the regression than to the baseline?"""
        if self.baseline is None or self.level is None:
            return False
        return self.night.value > half_way(self.baseline.value, self.level)


def replay(nights: Iterable[Night], rules: Rules = DEFAULT_RULES, floor: float = 0.0) -> list[Judged]:
    """Every night judged by what was known then, oldest first. ``floor``: a change below it is none, in their unit."""
    history = _History(rules, floor)
    return [history.see(night) for night in nights]


@dataclass
class _History:
    rules: Rules
    floor: float
    reference: list[Night] = field(default_factory=list)
    pending: list[Night] = field(default_factory=list)
    condition: Condition = Condition.TOO_LITTLE_DATA
    baseline: Baseline | None = None
    since: Night | None = None
    level: float | None = None

    def see(self, night: Night) -> Judged:
        if len(self.reference) < self.rules.points:
            self._learn([night])
            self.condition = Condition.STEADY if self.baseline else Condition.TOO_LITTLE_DATA
            return self._judged(night, None)
        self.pending.append(night)
        turn = self._recovered() if self.condition is Condition.REGRESSION else self._turn()
        judged = self._judged(night, turn)
        if turn is Turn.IMPROVEMENT:
            self._begin_anew()
        elif self.condition is Condition.STEADY:
            self._let_go()
        else:
            del self.pending[: -self.rules.together]
        return judged

    # --- what the newest nights say ----------------------------------------------------------------------------------

    def _turn(self) -> Turn | None:
        # An improvement moves the baseline, so it takes a night more.
        worse, better = self._beyond(+1, self.rules.nights), self._beyond(-1, self.rules.nights + 1)
        before, self.condition = self.condition, Condition.STEADY
        self.since = self.level = None
        if worse >= self.rules.nights:
            self.condition = Condition.REGRESSION
            self._since(worse)
            return Turn.REGRESSION
        if better > self.rules.nights:
            self._since(better)
            return Turn.IMPROVEMENT
        if worse:
            self.condition = Condition.SUSPECTED
            self._since(1)
            return Turn.SUSPECTED if before is not Condition.SUSPECTED else None
        return None

    def _beyond(self, sign: int, in_a_row: int) -> int:
        """How many of the newest nights are beyond the bounds together: 0 where none is, the most telling number."""
        baseline = self._known()
        away = [sign * _away(night.value, baseline.value) for night in self.pending]
        least = max(math.log1p(self.rules.ratio), _log_of_floor(self.floor, baseline.value))
        best, strongest = 0, 0.0
        for count in range(1, min(len(away), self.rules.together) + 1):
            newest = away[-count:]
            # One of them that is far out, a spike, counts for little more than its neighbours.
            most = _SPIKE * statistics.median_low(newest)
            mean = sum(min(one, most) for one in newest) / count
            seen = baseline.highest if sign > 0 else -baseline.lowest
            clear = min(newest[-in_a_row:]) > least / 2
            strength = mean / baseline.error(count)
            if clear and mean > max(least, seen) and strength > max(self.rules.strength, strongest):
                best, strongest = count, strength
        return best

    def _since(self, count: int) -> None:
        nights = self.pending[-count:]
        self.since = nights[0]
        self.level = _mean(nights)

    def _recovered(self) -> Turn | None:
        """Are the newest nights nearer to the baseline than to what they had become?"""
        assert self.level is not None
        border = half_way(self._known().value, self.level)
        newest = self.pending[-self.rules.nights :]
        if len(newest) < self.rules.nights or any(night.value > border for night in newest):
            return None
        self.condition, self.since, self.level = Condition.STEADY, None, None
        self.pending = newest
        return Turn.RECOVERED

    # --- what they are held against ----------------------------------------------------------------------------------

    def _let_go(self) -> None:
        """What was steady for long enough becomes part of the baseline, while there is room."""
        while len(self.pending) > self.rules.together:
            night = self.pending.pop(0)
            if len(self.reference) < self.rules.window:
                self._learn([night])

    def _learn(self, nights: Sequence[Night]) -> None:
        self.reference.extend(nights)
        if len(self.reference) >= self.rules.points:
            self.baseline = baseline_of(self.reference, self.rules)

    def _begin_anew(self) -> None:
        """An improvement is the new baseline at once: what comes after has to be as good."""
        assert self.since is not None
        better = self.pending[self.pending.index(self.since) :]
        self.reference, self.pending, self.baseline = [], [], None
        self.since = self.level = None
        self.condition = Condition.TOO_LITTLE_DATA
        self._learn(better)

    def _known(self) -> Baseline:
        assert self.baseline is not None
        return self.baseline

    def _judged(self, night: Night, turn: Turn | None) -> Judged:
        missing = max(0, self.rules.points - len(self.reference))
        found = Judged(night, self.condition, self.baseline, self.reference[0], len(self.reference), missing)
        if self.baseline is None:
            return found
        least = max(math.log1p(self.rules.ratio), _log_of_floor(self.floor, self.baseline.value))
        wide = self.rules.strength * self.baseline.error(1)
        return Judged(
            night=night,
            condition=self.condition,
            baseline=self.baseline,
            first=self.reference[0],
            points=len(self.reference),
            lower=_moved(self.baseline.value, -max(least, wide, -self.baseline.lowest)),
            upper=_moved(self.baseline.value, max(least, wide, self.baseline.highest)),
            level=self.level,
            since=self.since,
            turn=turn,
        )


def baseline_of(nights: Sequence[Night], rules: Rules) -> Baseline:
    """The baseline that these nights make: their median, and how far one of them is from it."""
    value = statistics.median(night.value for night in nights)
    away = sorted(_away(night.value, value) for night in nights)
    return Baseline(value, max(_noise(away), rules.least_noise), len(nights), nights[0], away[-2], away[1])


def half_way(baseline: float, level: float) -> float:
    """Between the two, of their logarithms."""
    return math.sqrt(baseline * level)


def _noise(away: Sequence[float]) -> float:
    """Standard deviation of what is within three robust ones: nearly as sure as a plain one, and no spike moves it."""
    robust = _TO_SIGMA * statistics.median(abs(one) for one in away)
    near = [one for one in away if abs(one) <= 3 * robust] if robust > 0 else list(away)
    # Of few values it is uncertain, and an alarm for nothing costs more than a night more.
    return math.sqrt(sum(one * one for one in near) / (len(near) - 1)) * (1 + 4 / len(near))


def _mean(nights: Sequence[Night]) -> float:
    return math.exp(sum(_log(night.value) for night in nights) / len(nights))


def _log(value: float) -> float:
    return math.log(max(value, _SMALLEST))


def _away(value: float, baseline: float) -> float:
    """Logarithm of their ratio; of two that took no time at all it is 0."""
    return _log(value) - _log(baseline)


def _moved(value: float, away: float) -> float:
    """What is so far ``_away`` from ``value``."""
    return math.exp(min(_log(value) + away, _MOST))


def _log_of_floor(floor: float, value: float) -> float:
    return math.log1p(floor / max(value, _SMALLEST))
