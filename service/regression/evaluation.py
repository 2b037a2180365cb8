"""Hold the rules against histories whose truth is known, and count."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from service.domain.change_points import change_points
from service.domain.figures import COLD_S, WARM_S, Figure
from service.domain.regression import Judged, Night, Rules, Turn, replay
from service.regression.drawn import Level, Scatter, draw, drift, spikes, steady, step

YEAR = 365
STEP = 0.10
FIRST_STEP, LAST_STEP = 30, 330
"""Between these nights of a year a step may come."""

NEAR = 3
"""A change of level that is found looking back within so many nights of where it was is right."""

WINDOW = 7
"""An alarm within so many nights is about the step; a later one was not in time."""

MEASURED = (
    (COLD_S, Scatter(0.03, 1)),
    (COLD_S, Scatter(0.03, 3)),
    (WARM_S, Scatter(0.03, 1)),
    (WARM_S, Scatter(0.03, 3)),
    (WARM_S, Scatter(0.08, 1)),
    (WARM_S, Scatter(0.08, 3)),
    (WARM_S, Scatter(0.08, 9)),
)
"""How far single starts scatter, and how many make a night. One configuration on a machine of its own was found to
scatter by 3 % cold, from one sweep to the next, and by 1 % warm; 8 % is a machine that others use too."""

Row = dict[str, Any]


@dataclass
class _Count:
    """``exposed``: nights in which an alarm would be false. ``delays``: nights until a step was found."""

    exposed: int = 0
    false: int = 0
    steps: int = 0
    delays: list[int] | None = None

    def found(self, within: int) -> int:
        return sum(delay <= within for delay in self.delays or ())


def years(rules: Rules, count: int) -> list[Row]:
    """A year of ``count`` series for each kind of measured scatter; half of them have a step of a tenth somewhere."""
    return [_year(rules, figure, scatter, count) for figure, scatter in MEASURED]


def _year(rules: Rules, figure: Figure, scatter: Scatter, count: int) -> Row:
    counted = _Count(delays=[])
    back = _Count(delays=[])
    for number in range(count):
        seed = f"{figure.name} {scatter} {number}"
        at = random.Random(seed).randrange(FIRST_STEP, LAST_STEP) if number % 2 else None
        nights = draw(YEAR, scatter, steady if at is None else step(at, STEP), seed)
        _add(counted, _alarms(replay(nights, rules, figure.floor(rules))), at, len(nights))
        _look_back(back, nights, at)
    alarms = counted.false + counted.found(WINDOW)
    return {
        "figure": figure.words,
        "noise": f"{scatter.noise:.0%}",
        "starts": scatter.starts,
        "precision": _part(counted.found(WINDOW), alarms),
        "recall": _part(counted.found(WINDOW), counted.steps),
        "within_3_nights": _part(counted.found(3), counted.steps),
        "within_7_nights": _part(counted.found(7), counted.steps),
        "median_nights": float(statistics.median(counted.delays)) if counted.delays else None,
        "false_alarms_a_year": round(counted.false / (counted.exposed / YEAR), 2),
        "looking_back_precision": _part(back.found(NEAR), back.found(NEAR) + back.false),
        "looking_back_recall": _part(back.found(NEAR), back.steps),
    }


def _alarms(found: Sequence[Judged]) -> list[tuple[int, Turn]]:
    """Regressions and improvements: what people are told of, and is false where nothing happened."""
    wanted = (Turn.REGRESSION, Turn.IMPROVEMENT)
    return [(place, one.turn) for place, one in enumerate(found) if one.turn in wanted and one.turn is not None]


def _add(counted: _Count, alarms: Sequence[tuple[int, Turn]], at: int | None, nights: int) -> None:
    """Up to the step an alarm is false; of what comes after it only whether it was found."""
    assert counted.delays is not None
    end = nights if at is None else at
    counted.exposed += end
    counted.false += sum(place < end for place, _ in alarms)
    if at is not None:
        counted.steps += 1
        delays = [place - at + 1 for place, turn in alarms if place >= at and turn is Turn.REGRESSION]
        counted.delays += delays[:1]


def _look_back(counted: _Count, nights: Sequence[Night], at: int | None) -> None:
    assert counted.delays is not None
    found = [change.index for change in change_points([night.value for night in nights])]
    right = [place for place in found if at is not None and abs(place - at) <= NEAR]
    counted.steps += at is not None
    counted.delays += [1] if right else []
    counted.false += len(found) - len(right[:1])


def _part(some: int, of: int) -> float | None:
    return round(some / of, 2) if of else None


@dataclass(frozen=True)
class _Kind:
    """A kind of history. ``at``: the night from which on an alarm is right, if one is."""

    words: str
    level: Level
    scatter: Scatter
    at: int | None = None
    wanted: Turn = Turn.REGRESSION


_COLD = Scatter(0.03)

KINDS = (
    _Kind("step of 5 %", step(100, 0.05), _COLD, 100),
    _Kind("step of 10 %", step(100, 0.10), _COLD, 100),
    _Kind("step of 20 %", step(100, 0.20), _COLD, 100),
    _Kind("10 % better", step(100, -0.10), _COLD, 100, Turn.IMPROVEMENT),
    _Kind("drift of 20 % over 200 nights", drift(0.20, 200), _COLD, 0),
    _Kind("steady", steady, _COLD),
    _Kind("spikes: one night in 30 takes twice as long", spikes(1 / 30, 2.0), _COLD),
    _Kind("noisy: 15 %", steady, Scatter(0.15)),
    _Kind("bimodal: one night in five takes 15 % longer", spikes(1 / 5, 1.15), _COLD),
)


def histories(rules: Rules, count: int) -> list[Row]:
    """Kinds of histories, ``count`` of each."""
    return [_history(rules, kind, count) for kind in KINDS]


def _history(rules: Rules, kind: _Kind, count: int) -> Row:
    delays: list[int] = []
    counted = _Count()
    for number in range(count):
        nights = draw(YEAR, kind.scatter, kind.level, f"{kind.words} {number}")
        alarms = _alarms(replay(nights, rules, COLD_S.floor(rules)))
        begin = YEAR if kind.at is None else kind.at
        counted.exposed += begin
        counted.false += sum(place < begin for place, _ in alarms)
        delays += [place - begin + 1 for place, turn in alarms if place >= begin and turn is kind.wanted][:1]
    return {
        "history": kind.words,
        "found": None if kind.at is None else _part(len(delays), count),
        "median_nights": float(statistics.median(delays)) if delays else None,
        "within_3_nights": None if kind.at is None else _part(sum(delay <= 3 for delay in delays), count),
        "false_alarms_a_year": round(counted.false / (counted.exposed / YEAR), 2) if counted.exposed else None,
    }
