"""Histories of a figure, drawn from a seed: what happens to its level, and how its nights scatter."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from service.domain.regression import Night

LEVEL_S = 20.0
DAY_S = 86_400.0

Level = Callable[[int, random.Random], float]
"""Night → what the level is multiplied with."""


@dataclass(frozen=True)
class Scatter:
    """``noise``: standard deviation of one start's logarithm. ``starts``: a night is the median of so many."""

    noise: float
    starts: int = 1

    def night(self, level: float, chance: random.Random) -> float:
        return statistics.median(level * chance.lognormvariate(0, self.noise) for _ in range(self.starts))


def draw(nights: int, scatter: Scatter, level: Level, seed: str) -> list[Night]:
    """So many nights; equal seeds give equal ones."""
    chance = random.Random(seed)
    return [
        Night(number, number * DAY_S, scatter.night(LEVEL_S * level(number, chance), chance))
        for number in range(nights)
    ]


def steady(number: int, chance: random.Random) -> float:
    return 1.0


def step(at: int, size: float) -> Level:
    """From night ``at`` on another level."""
    return lambda number, _: 1 + size if number >= at else 1.0


def drift(size: float, nights: int) -> Level:
    """Slowly up by ``size`` over so many nights, from the first on."""
    return lambda number, _: 1 + size * min(1.0, number / nights)


def spikes(often: float, size: float) -> Level:
    """This part of the nights takes ``size`` times as long."""
    return lambda _, chance: size if chance.random() < often else 1.0
