"""Findings about the residual stream: where it diverges, what was not compared, which invariant does not hold."""

from __future__ import annotations

from collections.abc import Iterator

from service.domain.case import Case, Reason
from service.domain.verdict import Verdict
from workers.protocol import (
    INVARIANTS,
    ONE_ORDER,
    REPLICAS_DIFFER,
    SKETCH_NUMBERS,
    Check,
    Divergence,
    Evidence,
    Invariant,
    Policy,
    Residual,
    Role,
    SequenceParallelism,
)


def residual(case: Case) -> Iterator[Reason]:
    """The residual stream disagrees, or was not compared in full."""
    if Check.RESIDUAL not in case.checks or case.evidence is None:
        return
    compared = {(item.subject, item.against) for item in case.evidence.residual}
    for subject, against in () if case.broken else _wanted_residuals(case):
        if (subject, against) not in compared:
            text = f"the residual of the {subject} arm was not compared with the {against} arm's"
            yield Reason(Verdict.INVALID_MEASUREMENT, text)
    for item in case.evidence.residual:
        yield from _residual(item, case)


def _wanted_residuals(case: Case) -> list[tuple[Role, Role]]:
    """Under SP the arm compared with is itself checked, where a reference runs (``service.domain.arms``).

    An arm that others are compared with was run twice. Without SP that is the probe, unless the cell has its own.
    """
    again = [(Role.REPLICATED, Role.REPLICATED)] if ran_twice(case) else []
    if not case.shape.sequence_parallelism:
        return [*again, (Role.PROBE, Role.REFERENCE)]
    control = [(Role.REPLICATED, Role.REFERENCE)] if Check.OUTPUTS in case.checks else []
    return [*again, (Role.PROBE, Role.REPLICATED), *control]


def ran_twice(case: Case) -> bool:
    own = [arm.role for arm in case.evidence.arms] if case.evidence else []
    return case.shape.sequence_parallelism or Role.PROBE not in own


def _residual(item: Residual, case: Case) -> Iterator[Reason]:
    name = f"residual of the {item.subject} arm against the {item.against} arm"
    found = first_divergence(item, _noise_factor(case))
    if found is not None:
        yield _diverges(item, found, name)
        return
    if item.steps_left_out:
        yield Reason(None, f"{name}: {item.steps_left_out} steps left out, the outputs had parted in a tie before")
    for gap in [*item.missing[:3], *_uncounted(item, case), *_unproven(item, case.evidence)]:
        yield Reason(Verdict.INVALID_MEASUREMENT, f"{name}: not compared in full: {gap}")


def _noise_factor(case: Case) -> float:
    return (case.evidence.policy if case.evidence else Policy()).noise_factor


def first_divergence(item: Residual, noise_factor: float) -> Divergence | None:
    """The first place that is wrong where scores up to ``noise_factor`` pass, from what is stored.

    Where bit equality is owed, or copies differ that must not, no factor decides.
    """
    stored = item.first_divergence
    if item.bitwise_required or not item.records:
        return stored
    first = next((one for one in item.records if one.score is None or one.score > noise_factor), None)
    return first or (stored if stored is not None and stored.pattern == REPLICAS_DIFFER else None)


def _diverges(item: Residual, found: Divergence, name: str) -> Reason:
    """A sentence, as the comparison wrote it; an older one left figures alone."""
    text = found.sentence or (
        f"first wrong at site {found.site} on rank {found.rank}, step {found.step}: {found.pattern}, "
        f"{found.tokens} of its rows"
    )
    if item.subject is Role.PROBE:
        return Reason(Verdict.FAIL_RESIDUAL, f"{name}: {text}")
    twice = item.subject is item.against
    control = (
        "it is not the same when it is run twice" if twice else "the arm this cell is compared with is itself wrong"
    )
    return Reason(Verdict.INVALID_MEASUREMENT, f"{name}: {text} ({control})")


def _uncounted(item: Residual, case: Case) -> Iterator[str]:
    """Count again, from the configuration alone, what a full comparison compares."""
    if item.missing:
        return
    sites, ranks = 2 * case.shape.layers + 1, case.shape.tensor_parallel_size
    width = SKETCH_NUMBERS if item.sketched else case.shape.hidden_size
    scattered, copied = _rows(item, sites)
    expected = {
        "sites": (item.sites, sites),
        "ranks": (item.ranks, ranks),
        "tokens over all sites": (scattered + copied, item.tokens * sites),
        "numbers": (item.elements, (scattered + copied * ranks) * width),
    }
    if not item.steps or not item.tokens:
        yield f"{item.steps} steps with {item.tokens} tokens were recorded"
    if scattered and not item.scattered:
        yield f"{scattered} rows were compared as parts where every rank holds all"
    for what, (found, wanted) in expected.items():
        if found != wanted:
            yield f"{found} {what} where {wanted} belong"


def _rows(item: Residual, sites: int) -> tuple[int, int]:
    """Tokens over all sites, by whether each rank has a part of them there or all. An older comparison had one kind."""
    if item.scattered_rows is None or item.replicated_rows is None:
        return (item.tokens * sites, 0) if item.scattered else (0, item.tokens * sites)
    return item.scattered_rows, item.replicated_rows


def _unproven(item: Residual, evidence: Evidence | None) -> Iterator[str]:
    """No divergence is named, yet the figures do not say that there is none."""
    if item.missing or evidence is None:
        return
    if item.bitwise_required:
        if item.bitwise_equal is not True:
            yield "bit equality is owed and was not found"
    elif item.worst_score is None or not item.worst_score <= evidence.policy.noise_factor:
        yield f"the worst score is {item.worst_score} where at most {evidence.policy.noise_factor:g} passes"
    copies = item.replicated_rows if item.replicated_rows is not None else not item.scattered
    if copies and item.ranks == ONE_ORDER and item.replicas_equal is not True and item.subject is not item.against:
        yield "the ranks' copies were not found equal"


def invariants(case: Case) -> Iterator[Reason]:
    """What has to hold without tolerance does not, or nobody looked."""
    if Check.RESIDUAL not in case.checks or case.evidence is None:
        return
    looked_at = {item.name: item for item in case.evidence.invariants if item.arm is Role.PROBE}
    for name in () if case.broken else INVARIANTS:
        if name not in looked_at:
            yield Reason(Verdict.INVALID_MEASUREMENT, f"the invariant {name} was not looked at")
        elif looked_at[name].held is None and name in _checkable(case):
            text = f"the invariant {name} could not be checked: {looked_at[name].detail}"
            yield Reason(Verdict.INVALID_MEASUREMENT, text)
    for item in case.evidence.invariants:
        if item.held is False:
            yield Reason(
                _gravity_of(item, case.evidence), f"{item.name} does not hold in the {item.arm} arm: {item.detail}"
            )


ALWAYS_CHECKABLE = ("token-order",)
CHECKABLE_UNDER_SP = ("shards-complete", "gathered-equal", "graphs-equal", "collectives")
"""A run in which the SP pass rewrote a graph has what these look at."""


def _checkable(case: Case) -> tuple[str, ...]:
    found = case.evidence.exercised.sequence_parallelism if case.evidence else None
    under_sp = CHECKABLE_UNDER_SP if found is not None and any(found.per_rank) else ()
    in_stages = ("boundary",) if case.shape.pipeline_parallel_size > 1 else ()
    return (*ALWAYS_CHECKABLE, *under_sp, *in_stages)


def _gravity_of(item: Invariant, evidence: Evidence) -> Verdict:
    """Of an arm that others are compared with it says that nothing is proven. A pass that did too little is no fault
    of the residual: see ``service.domain.findings.exercised``."""
    if item.arm is not Role.PROBE:
        return Verdict.INVALID_MEASUREMENT
    found = evidence.exercised.sequence_parallelism
    short = found is not None and any(matched < wanted for matched, wanted in shortfall_by_rank(found))
    return Verdict.NOT_EXERCISED if item.name == "collectives" and short else Verdict.FAIL_RESIDUAL


def shortfall_by_rank(found: SequenceParallelism) -> list[tuple[int, int]]:
    """What each rank's pass matched and what it should have: the stages of a pipeline have different numbers."""
    same_for_all = [found.expected or 0] * len(found.per_rank)
    return list(zip(found.per_rank, found.expected_per_rank or same_for_all, strict=False))
