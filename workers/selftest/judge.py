"""What the checker says of one recording. It is given folders, and never the name of the fault that lies in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from workers.protocol import ROUNDING, Divergence, Invariant, Policy, Residual, Role
from workers.residual.compare import compare
from workers.residual.invariants import CHECKS, Arm
from workers.residual.layout import whole_places
from workers.residual.noise import measured_floor
from workers.residual.question import Question
from workers.residual.taps import NoTaps, TapSet, load
from workers.selftest.catalogue import NOISE_SEEDS, RANKS, REPLICATED, RESIDUAL, SITES
from workers.selftest.engines import Engine

BITS, COMPLETENESS, ROWS = "bit equality", "everything is there", "the number of rows"
"""What the comparison demands. Without the first it holds residuals to the modelled noise floor."""

DEMANDS = (BITS, COMPLETENESS, ROWS)


@dataclass(frozen=True)
class Finding:
    """``by``: the checks that say that something is wrong. ``seen``: where the residual is wrong first.

    ``without``: for each demand of the comparison whether the comparison still finds something when it is left out.
    """

    by: frozenset[str]
    seen: Divergence | None
    details: tuple[str, ...] = ()
    without: dict[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Recording:
    """A folder of recordings and the engine that made it."""

    engine: Engine
    folder: Path

    def taps(self) -> TapSet:
        return _load(self.folder, self.engine.stages)

    def told(self) -> list[dict[str, Any]]:
        """What each rank told of itself."""
        ranks = json.loads((self.folder / "result.json").read_text())["ranks"]
        return sorted(ranks, key=lambda rank: int(rank["rank"]))


Noise = tuple[Recording, ...] | None
"""Recordings of the control with rounding errors, by which the noise floor is measured. Of none it is modelled.
``None``: bit equality is owed, as it is on two ranks."""


@lru_cache(maxsize=4)
def _load(folder: Path, stages: int) -> TapSet:
    return load(folder, RANKS, stages)


def judge(subject: Recording, control: Recording, noise: Noise = None, left_out: int = 0) -> Finding:
    """Hold ``subject`` against ``control`` to what ``noise`` allows, then both to the invariants.

    ``left_out``: so many last steps are not compared.
    """
    try:
        question = _laid_out(subject, _question(subject.engine, noise is None))
        if left_out:
            question = replace(question, steps=frozenset(range(len(subject.taps().tokens) - left_out)))
        if noise is not None:
            question = replace(question, noise=_floor(control, noise))
        residual = compare(subject.taps(), control.taps(), question)
        without = {demand: _without(demand, subject, control, question, residual) for demand in DEMANDS}
    except NoTaps as error:
        return Finding(frozenset({RESIDUAL}), None, (str(error),), {d: d is not COMPLETENESS for d in DEMANDS})
    found = _invariants(subject, question, control) + _of_control(control)
    broken = [invariant for invariant in found if invariant.held is False]
    by = {invariant.name for invariant in broken} | ({RESIDUAL} if is_fault(residual) else set())
    details = tuple(f"{invariant.name}: {invariant.detail}" for invariant in broken)
    return Finding(frozenset(by), residual.first_divergence, (*residual.missing[:1], *details), without)


def is_fault(residual: Residual) -> bool:
    return residual.first_divergence is not None or bool(residual.missing) or residual.elements == 0


def _question(engine: Engine, bitwise: bool) -> Question:
    return Question(
        subject=engine.role,
        against=Role.REPLICATED,
        scattered=engine.threshold is not None,
        bitwise=bitwise,
        sites=SITES,
        noise_factor=Policy().noise_factor,
        dtype=torch.float32,
    )


def _laid_out(subject: Recording, question: Question) -> Question:
    """As the graphs of one rank of each stage say that it is."""
    if not question.scattered:
        return question
    censuses = [rank["census"] for rank in subject.told()[::RANKS]]
    whole = whole_places(subject.engine.shape, subject.taps().steps, censuses, SITES)
    return replace(question, whole=whole)


def _floor(control: Recording, noise: tuple[Recording, ...]) -> tuple[float, ...] | None:
    steps = frozenset(range(len(control.taps().tokens)))
    return measured_floor(control.taps(), [(run.taps(), steps) for run in noise], SITES)


@lru_cache(maxsize=4)
def _of_control(control: Recording) -> list[Invariant]:
    return _invariants(control, _question(control.engine, True), None)


def _invariants(recording: Recording, question: Question, control: Recording | None) -> list[Invariant]:
    engine = recording.engine
    held_to = None if control is None else control.taps()
    arm = Arm(engine.role, recording.taps(), recording.told(), engine.shape, question, held_to)
    return [check(arm) for check in CHECKS.values()]


# --- a checker that demands less -----------------------------------------------------------------------------------


def _without(demand: str, subject: Recording, control: Recording, question: Question, full: Residual) -> bool:
    """Whether a comparison that does not make ``demand`` finds something."""
    if not is_fault(full):
        return False
    weaker: dict[str, Callable[[], bool]] = {
        BITS: lambda: is_fault(compare(subject.taps(), control.taps(), replace(question, bitwise=False))),
        COMPLETENESS: lambda: full.first_divergence is not None,
        ROWS: lambda: bool(full.missing) or not _is_a_size(full.first_divergence),
    }
    return weaker[demand]()


def _is_a_size(seen: Divergence | None) -> bool:
    return seen is not None and seen.pattern.startswith(("wrong-size", "replicated-where", "scattered-where"))


def noise_of(engine: Engine, folder: Path) -> tuple[Recording, ...]:
    """The recordings with rounding errors of the replicated engine."""
    return tuple(Recording(engine, folder / REPLICATED / f"{ROUNDING}-{seed}") for seed in NOISE_SEEDS)
