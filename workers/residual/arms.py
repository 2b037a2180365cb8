"""The recordings of a run's arms, read from their folders, compared and checked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from workers.protocol import AGAIN, INVARIANTS, ONE_ORDER, ROUNDING, Invariant, Residual, Role, RunSpec, Shape
from workers.residual.compare import compare
from workers.residual.invariants import Arm, invariants
from workers.residual.layout import whole_places
from workers.residual.noise import distances, measured_floor
from workers.residual.question import Question
from workers.residual.steps import alike, same_input
from workers.residual.taps import NoTaps, TapSet, load, site_count

Result = dict[str, Any]
"""``result.json`` of an arm or of a trial, see ``workers.engine.arm``."""

FUSES_COLLECTIVES = "fuse_gemm_comms"


@dataclass
class Arms:
    """What there is to compare in the run of ``spec``; ``probe`` is the folder of the arm that is judged."""

    spec: RunSpec
    probe: Path | None
    _taps: dict[Path, TapSet] = field(default_factory=dict)

    @property
    def shape(self) -> Shape:
        return self.spec.shape

    @property
    def replicated(self) -> Path | None:
        return Path(self.spec.replicated) if self.spec.replicated else None

    @property
    def reference(self) -> Path | None:
        return Path(self.spec.reference) if self.spec.reference else None

    @property
    def control(self) -> Path | None:
        """The arm that was run twice: the replicated one, which without SP is the shared probe."""
        own = Path(self.spec.probe) if self.spec.probe and not self.shape.sequence_parallelism else None
        return self.replicated or own

    def taps(self, folder: Path) -> TapSet:
        """
        Raises:
            NoTaps: see :func:`workers.residual.taps.load`.
        """
        if folder not in self._taps:
            alone = folder == self.reference
            sizes = (1, 1) if alone else (self.shape.tensor_parallel_size, self.shape.pipeline_parallel_size)
            self._taps[folder] = load(folder, *sizes)
        return self._taps[folder]

    def result(self, folder: Path) -> Result:
        return dict(json.loads((folder / "result.json").read_text()))

    def same_input(self, one: Path, other: Path) -> frozenset[int]:
        """Steps in which both were given the same tokens."""
        steps = alike(self.taps(one).steps, self.taps(other).steps)
        return same_input(steps, self.result(one)["outputs"], self.result(other)["outputs"])


# --- comparisons -----------------------------------------------------------------------------------------------------


def examine(spec: RunSpec, probe: Path | None) -> tuple[list[Residual], list[Invariant]]:
    """All comparisons of a run, and what has to hold without tolerance. ``probe``: folder of the arm that is judged."""
    arms = Arms(spec, probe)
    return list(_residuals(arms)), list(_invariants(arms))


def _residuals(arms: Arms) -> Iterator[Residual]:
    """The replicated arm against itself; the probe against it; and each of them against the TP=1 reference.

    That reference is in full precision. Under SP the probe may be farther from it than the replicated arm is, by no
    more than the policy's factor: the distance of the replicated arm is its floor.
    """
    sp = arms.shape.sequence_parallelism
    if arms.control and (arms.control / AGAIN).is_dir():
        yield _again(arms, arms.control)
    if arms.probe and arms.replicated and sp:
        yield _compared(arms, _question(arms, Role.PROBE, Role.REPLICATED), arms.probe, arms.replicated)
    if arms.reference and arms.replicated and sp:
        yield _compared(arms, _question(arms, Role.REPLICATED, Role.REFERENCE), arms.replicated, arms.reference)
    if arms.reference and arms.probe:
        yield _compared(arms, _question(arms, Role.PROBE, Role.REFERENCE), arms.probe, arms.reference)


def _question(arms: Arms, subject: Role, against: Role) -> Question:
    shape, policy = arms.shape, arms.spec.policy
    return Question(
        subject=subject,
        against=against,
        scattered=shape.sequence_parallelism and subject is Role.PROBE,
        # A sum of two has one order; of more it has several, and one rank sums in yet another.
        bitwise=against is Role.REPLICATED and shape.tensor_parallel_size <= ONE_ORDER,
        sites=site_count(shape.layers),
        noise_factor=policy.noise_factor,
        dtype=getattr(torch, shape.dtype, None),
        modelled_factor=policy.modelled_factor,
        modelled_growth=policy.modelled_growth,
    )


def _again(arms: Arms, folder: Path) -> Residual:
    """The same plan twice in one engine: whatever the number of ranks, each has to hold the same bits again."""
    question = _question(arms, Role.REPLICATED, Role.REPLICATED)
    return _held(arms, replace(question, bitwise=True, by_rank=True), folder / AGAIN, folder)


def _compared(arms: Arms, question: Question, subject: Path, control: Path) -> Residual:
    try:
        question = _laid_out(arms, question, subject)
        if not question.bitwise:
            question = _with_noise(arms, question, subject, control)
    except NoTaps as error:
        return _nothing(question, str(error))
    return _held(arms, question, subject, control)


def _held(arms: Arms, question: Question, subject: Path, control: Path) -> Residual:
    try:
        return compare(arms.taps(subject), arms.taps(control), question)
    except NoTaps as error:
        return _nothing(question, str(error))


def _laid_out(arms: Arms, question: Question, subject: Path) -> Question:
    """Say where the subject holds every token although SP is on."""
    if not question.scattered:
        return question
    ranks = sorted(arms.result(subject).get("ranks", []), key=lambda rank: int(rank["rank"]))
    first_of_stages = [rank["census"] for rank in ranks[:: arms.shape.tensor_parallel_size]]
    whole = whole_places(arms.shape, arms.taps(subject).steps, first_of_stages, question.sites)
    return replace(question, whole=whole)


def _with_noise(arms: Arms, question: Question, subject: Path, control: Path) -> Question:
    """Say what rounding alone does, where it was measured, and which steps can be compared."""
    question = replace(question, steps=arms.same_input(subject, control))
    if question.against is Role.REPLICATED:
        folders = sorted(control.glob(f"{ROUNDING}-*"))
        runs = [(arms.taps(folder), arms.same_input(folder, control)) for folder in folders]
        seeds = tuple(int(folder.name.rpartition("-")[2]) for folder in folders)
        return replace(question, noise=measured_floor(arms.taps(control), runs, question.sites), seeds=seeds)
    if question.subject is Role.PROBE and question.scattered and arms.replicated:
        steps = arms.same_input(arms.replicated, control)
        noise = distances(arms.taps(arms.replicated), arms.taps(control), question.sites, steps)
        return replace(question, noise=noise)
    return question


def _nothing(question: Question, why: str) -> Residual:
    return Residual(
        subject=question.subject,
        against=question.against,
        sites=0,
        steps=0,
        ranks=0,
        tokens=0,
        elements=0,
        scattered=question.scattered,
        missing=[why],
        bitwise_equal=None,
        bitwise_required=question.bitwise,
        worst_score=None,
        replicas_equal=None,
        first_divergence=None,
    )


# --- invariants ------------------------------------------------------------------------------------------------------


def _invariants(arms: Arms) -> Iterator[Invariant]:
    """Of the probe, and of the replicated arm it is compared with."""
    if arms.probe is not None:
        yield from _checked(arms, Role.PROBE, arms.probe, arms.replicated or arms.reference)
    if arms.replicated is not None:
        yield from _checked(arms, Role.REPLICATED, arms.replicated, arms.reference)


def _checked(arms: Arms, role: Role, folder: Path, control: Path | None) -> list[Invariant]:
    against = Role.REFERENCE if control == arms.reference else Role.REPLICATED
    question = _question(arms, role, against)
    try:
        question = _laid_out(arms, question, folder)
        if control is not None and not question.bitwise:
            question = _with_noise(arms, question, folder, control)
        elif control is not None:
            # A wrong residual soon leads to other tokens; what follows from those is no disorder of its own.
            question = replace(question, steps=arms.same_input(folder, control))
        taps, held_to = arms.taps(folder), arms.taps(control) if control else None
    except NoTaps as error:
        return [Invariant(name=name, held=None, checked=0, detail=str(error), arm=role) for name in INVARIANTS]
    ranks = arms.result(folder).get("ranks", [])
    return invariants(Arm(role, taps, ranks, _shape(arms.shape, role), question, held_to, _is_fused(arms.spec)))


def _shape(shape: Shape, role: Role) -> Shape:
    """The replicated arm is the cell with SP off."""
    if role is Role.PROBE:
        return shape
    return shape.model_copy(update={"sequence_parallelism": False, "sp_min_token_num": None})


def _is_fused(spec: RunSpec) -> bool:
    """The probe was asked to fuse collectives into matrix products, which takes them out of the graph again."""
    asked = [arm.engine for arm in spec.arms if arm.role is Role.PROBE]
    return any(value for engine in asked for key, value in engine.items() if key.endswith(FUSES_COLLECTIVES))
