"""Two recordings side by side: at any step, site and rank what is held, and what belongs there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from workers.residual.question import Question, Spot
from workers.residual.rows import Rows, rows_of
from workers.residual.taps import Step, TapSet
from workers.residual.unshard import Part, part


@dataclass(frozen=True, eq=False)
class Finding:
    """One place compared. ``wrong``: numbers of its wrong rows. ``scores``: of each token; empty where ``problem``.

    ``score`` is the largest, ``None`` where no number can be given. ``problem``: why rows were not compared at all.
    """

    spot: Spot
    rows: int
    elements: int
    equal: bool
    wrong: torch.Tensor
    scores: torch.Tensor
    score: float | None
    problem: str = ""


@dataclass(frozen=True)
class Pair:
    """``subject`` is held against ``control``, whose rank 0 has the whole residual (each rank, if asked by rank)."""

    subject: TapSet
    control: TapSet
    question: Question
    _wholes: dict[tuple[int, int, int], Rows | None] = field(default_factory=dict)

    @property
    def ranks(self) -> int:
        return len(self.subject.ranks)

    @property
    def steps(self) -> list[int]:
        """Those that are compared: both ran them (once they differ, nothing after can be held against each other)."""
        pairs = zip(self.subject.tokens, self.control.tokens, strict=False)
        common = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
        wanted = self.question.steps
        return [step for step, _ in enumerate(common) if wanted is None or step in wanted]

    def places(self) -> Iterator[Spot]:
        """Every place that is compared, in the order in which the first wrong one is named."""
        for step in self.steps:
            for site in range(self.question.sites):
                for rank in range(self.ranks):
                    yield Spot(step, site, rank)

    def step(self, number: int) -> Step:
        """What is known of a step; of a recording without an index, no more than its tokens."""
        tokens = self.subject.tokens[number]
        return self.subject.steps[number] if self.subject.steps else Step(tokens, tokens)

    def part(self, spot: Spot) -> Part:
        scattered = self.question.scattered_at(spot.step, spot.site)
        step = self.step(spot.step)
        return part(step.tokens, self.ranks, spot.rank, scattered, step.padded)

    def held(self, spot: Spot) -> Rows | None:
        kept = self.subject.at(spot.rank, spot.step, spot.site)
        return None if kept is None else rows_of(kept)

    def whole(self, spot: Spot) -> Rows | None:
        """All tokens of the control at this place, if they are there and made of numbers."""
        rank = spot.rank if self.question.by_rank else 0
        key = (spot.step, spot.site, rank)
        if key not in self._wholes:
            self._wholes[key] = self._whole(*key)
        return self._wholes[key]

    def _whole(self, step: int, site: int, rank: int) -> Rows | None:
        kept = self.control.at(rank, step, site) if rank < len(self.control.ranks) else None
        if kept is None:
            return None
        tokens = self.control.tokens[step]
        rows = rows_of(kept)
        complete = len(rows) >= tokens and rows.part(0, tokens).finite()
        return rows.part(0, tokens) if complete else None

    def expected(self, spot: Spot) -> Rows | None:
        whole, mine = self.whole(spot), self.part(spot)
        return None if whole is None else whole.part(mine.start, mine.stop)
