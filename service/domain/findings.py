"""The rules by which evidence becomes findings. Each yields reasons, in its own words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from service.domain.case import Case, Reason
from service.domain.residual_findings import ran_twice, shortfall_by_rank
from service.domain.start_findings import answers, begun_differently, name_of, not_warm, timed_starts
from service.domain.time_notes import arm_notes, gaps, other_kv_cache, unexplained
from service.domain.verdict import Verdict
from service.domain.wording import listing
from workers.protocol import (
    ArmReport,
    Check,
    CompileTimes,
    Outcome,
    OutputClass,
    OutputComparison,
    Patch,
    PatchMode,
    PatchState,
    Policy,
    RankArtifacts,
    RankTimes,
    Role,
    Shape,
    TimedStart,
)

COMPILER_PHASES = (
    "dynamo",
    "vllm_backend",
    "aot_autograd",
    "inductor_passes",
    "vllm_passes",
    "shardproof_passes",
    "inductor_lowering",
    "inductor_scheduling",
    "inductor_codegen",
    "inductor_compile",
)
"""Phases of a rank's time line in which something is compiled, see ``workers.probes.span_phases``."""

LOADING_PHASES = (*COMPILER_PHASES, "cache_key", "cache_load", "profile")
"""Where the time of a start that loads shows."""

GENERATING_PHASES = ("inductor_lowering", "inductor_scheduling", "inductor_codegen")
"""Phases that a start which only loads has none of."""

FULL_PRECISION = "float32"

CLOCK_TOLERANCE = 0.02
"""Phases and the unexplained rest may miss the outer wall time by this part of it."""


def lost(case: Case) -> Iterator[Reason]:
    """The run was lost, or an arm it is compared with."""
    if case.failure is not None:
        yield Reason(Verdict.CRASHED, case.failure)
    elif case.evidence is None and set(case.checks) - {Check.AUDIT} and not case.lost:
        yield Reason(Verdict.INVALID_MEASUREMENT, "the run ended without evidence")
    yield from case.lost


_OUTCOMES = {
    Outcome.CRASHED: Verdict.CRASHED,
    Outcome.TIMED_OUT: Verdict.TIMED_OUT,
    Outcome.CANCELLED: Verdict.CANCELLED,
}


def arms(case: Case) -> Iterator[Reason]:
    """An engine died, hung or was stopped."""
    for arm in case.evidence.arms if case.evidence else ():
        if arm.outcome is not Outcome.OK:
            yield Reason(_OUTCOMES[arm.outcome], how_it_ended(arm))
        for note in arm_notes(arm):
            yield Reason(None, f"{arm.role} arm: {note}")


def shared_arm(arm: ArmReport, own: bool) -> Reason:
    """A shared arm that did not come through. ``own``: it would have been the cell's own probe."""
    finding = _OUTCOMES[arm.outcome] if own else Verdict.INVALID_MEASUREMENT
    return Reason(finding, how_it_ended(arm) if own else f"nothing to compare with: {how_it_ended(arm)}")


def how_it_ended(arm: ArmReport) -> str:
    """Which arm, rank and phase, and for how long; what it said; the likely cause; the last line of its own log."""
    name = f"{arm.role} arm" if arm.repeat == 1 else f"{arm.role} arm {arm.repeat}"
    if arm.failure is None:
        return f"{name}: {arm.outcome}"
    where = "main process" if arm.failure.rank is None else f"rank {arm.failure.rank}"
    since = "" if arm.failure.since_s is None else f" for {arm.failure.since_s:.0f} s"
    cause = f" Likely cause: {arm.failure.cause}." if arm.failure.cause else ""
    stacks = f" Stacks: {arm.failure.stacks}." if arm.failure.stacks else ""
    last = f" Last line of its log: {arm.failure.log_tail[-1]}" if arm.failure.log_tail else ""
    phase = f"phase {arm.failure.phase or 'unknown'}{since}"
    return f"{name}, {where}, {phase}: {arm.failure.message}.{cause}{stacks}{last}"


def outputs(case: Case) -> Iterator[Reason]:
    """The tokens or log-probabilities disagree, or were not compared."""
    if Check.OUTPUTS not in case.checks or case.evidence is None:
        return
    compared = {item.against for item in case.evidence.outputs if item.subject is Role.PROBE}
    wanted = (Role.REPLICATED, Role.REFERENCE) if case.shape.sequence_parallelism else (Role.REFERENCE,)
    for against in () if case.broken else wanted:
        if against not in compared:
            yield Reason(Verdict.INVALID_MEASUREMENT, f"the outputs were not compared with the {against} arm's")
    for item in case.evidence.outputs:
        if item.subject is Role.PROBE:
            yield from _outputs(item, _tie(case.shape, case.evidence.policy))


def outputs_again(case: Case) -> Iterator[Reason]:
    """The arm that others are compared with answers differently when it is run twice, or was not run twice."""
    if Check.OUTPUTS not in case.checks or case.evidence is None:
        return
    twice = [item for item in case.evidence.outputs if item.subject is item.against]
    if not twice and ran_twice(case) and not case.broken:
        yield Reason(Verdict.INVALID_MEASUREMENT, "the replicated arm was not run twice: its outputs were not compared")
    for item in twice:
        if item.klass is not OutputClass.IDENTICAL or not item.compared_tokens:
            what = item.problem or item.klass or "no tokens"
            text = f"the {item.subject} arm does not answer the same when it is run twice: {what}"
            yield Reason(Verdict.INVALID_MEASUREMENT, text)


def _tie(shape: Shape, policy: Policy) -> float:
    """Up to this margin a token that differs is a tie."""
    return policy.flip_margin if shape.dtype == FULL_PRECISION else policy.reduced_precision_flip_margin


def _outputs(item: OutputComparison, largest_tie: float) -> Iterator[Reason]:
    name = f"outputs against the {item.against} arm"
    if item.klass is None or item.compared_tokens == 0:
        yield Reason(Verdict.INVALID_MEASUREMENT, f"{name} were not compared: {item.problem or 'no tokens'}")
    elif item.klass is OutputClass.GARBAGE:
        yield Reason(Verdict.FAIL_OUTPUT, f"{name}: a log-probability is not a finite number")
    elif item.klass is OutputClass.FLIP and item.first_difference is None:
        yield Reason(Verdict.FAIL_OUTPUT, f"{name}: a token differs")
    elif item.klass is OutputClass.FLIP and item.first_difference is not None:
        found = item.first_difference
        tie = found.margin is not None and abs(found.margin) <= largest_tie
        margin = "unknown" if found.margin is None else f"{found.margin:.3g}"
        yield Reason(
            None if tie else Verdict.FAIL_OUTPUT,
            f"{name}: request {found.request}, position {found.position}: token {found.found} where {found.expected} "
            f"belongs, margin {margin}" + (" (a tie)" if tie else ""),
        )
    elif item.klass is OutputClass.DRIFT:
        drift = item.worst_logprob_difference
        amount = "an unknown amount" if drift is None else f"{drift:.3g}"
        yield Reason(None, f"{name}: same tokens, log-probabilities drift by {amount}")


def guards(case: Case) -> Iterator[Reason]:
    """A guard of full-graph SP does not hold although nobody took it away."""
    if case.evidence is None:
        return
    removed = case.patches.get(Patch.FULL_GRAPH_SP) is PatchMode.OFF
    for guard in case.evidence.guards:
        if guard.held is False:
            text = f"guard {guard.name} does not hold: {guard.detail}"
            yield Reason(
                None if removed else Verdict.FAIL_GUARD, text + (" (taken away on request)" if removed else "")
            )


def compile_times(case: Case) -> Iterator[Reason]:
    """A cold start that was not cold, a warm one that was not warm, a clock that does not add up."""
    if Check.COMPILE not in case.checks or case.evidence is None:
        return
    if not case.shape.compiled:
        yield Reason(None, "this configuration does not compile: nothing to time")
        return
    starts = timed_starts(case.evidence.compile)
    for role in (Role.COLD, Role.WARM):
        if not case.broken and not any(start.role is role for start in starts):
            yield Reason(Verdict.INVALID_MEASUREMENT, f"no {role} start was timed")
    for start in starts:
        for problem in [*_ranks_of(start.times, case), *_proof(start, starts), *_clock(start.times)]:
            yield Reason(Verdict.INVALID_MEASUREMENT, f"{name_of(start, starts)}: {problem}")
        yield from answers(start, starts)
        for note in [*unexplained(start.times, CLOCK_TOLERANCE), *gaps(start.times)]:
            yield Reason(None, f"{name_of(start, starts)}: {note}")
    for text in begun_differently(starts):
        yield Reason(Verdict.INVALID_MEASUREMENT, text)
    yield from other_kv_cache(starts)


def _proof(start: TimedStart, starts: Sequence[TimedStart]) -> Iterator[str]:
    """The counters of every rank, which prove a start cold or warm."""
    if start.role is Role.WARM:
        yield from not_warm(start, starts)
    else:
        for rank in start.times.artifacts.ranks:
            if not _is_cold(rank):
                yield (
                    f"rank {rank.rank} is not cold: {rank.saved} artifacts saved, {rank.loaded} loaded, "
                    f"{rank.compiled} compiled"
                )
    for rank in start.times.artifacts.ranks:
        if rank.held_before:
            yield f"rank {rank.rank} held what was compiled before it began: {listing(rank.held_before)}"
    if start.cache_problem is not None:
        yield f"what was compiled may not have been kept: {start.cache_problem}"


def _ranks_of(times: CompileTimes, case: Case) -> Iterator[str]:
    ranks = _ranks(case)
    proven = {rank.rank for rank in times.artifacts.ranks}
    if proven != set(range(ranks)) or {rank.rank for rank in times.ranks} != proven:
        yield f"ranks {sorted(proven)} reported where {ranks} ran"
    for word in ("saved", "loaded"):
        whole, parts = getattr(times.artifacts, word), sum(getattr(rank, word) for rank in times.artifacts.ranks)
        if whole != parts:
            yield f"{whole} artifacts {word} in all, and {parts} by the ranks"


def _ranks(case: Case) -> int:
    return case.shape.tensor_parallel_size * case.shape.pipeline_parallel_size


def _is_cold(rank: RankArtifacts) -> bool:
    return rank.saved > 0 and rank.loaded == 0 and rank.compiled > 0


def _clock(times: CompileTimes) -> Iterator[str]:
    if not times.total_s > 0:
        yield f"{times.total_s:g} s of outer wall time"
    counted = {rank.rank: rank for rank in times.artifacts.ranks}
    for rank in times.ranks:
        if rank.rank in counted:
            yield from _counters_and_clock(rank, counted[rank.rank])
        for phase in rank.phases:
            if phase.s < 0:
                yield f"rank {rank.rank}: the phase {phase.name} took {phase.s:.2f} s"
        explained = sum(phase.s for phase in rank.phases) + rank.unaccounted_s
        if abs(explained - times.total_s) > CLOCK_TOLERANCE * times.total_s:
            yield f"rank {rank.rank}: phases and rest make {explained:.2f} s of {times.total_s:.2f} s outer wall time"
        if rank.unaccounted_s < -CLOCK_TOLERANCE * times.total_s:
            yield f"rank {rank.rank}: phases overlap by {-rank.unaccounted_s:.2f} s"


def _counters_and_clock(rank: RankTimes, counted: RankArtifacts) -> Iterator[str]:
    """What the counters say was done has to have taken time, and what took time has to have been done."""
    if counted.compiled > 0 and not _spent(rank, COMPILER_PHASES) > 0:
        yield f"rank {rank.rank}: 0 s of compilation with artifacts compiled"
    if counted.loaded > 0 and not _spent(rank, LOADING_PHASES) > 0:
        yield f"rank {rank.rank}: 0 s of loading with artifacts loaded"
    clocked = None if rank.ranges is None else sum(part.calls for part in rank.ranges)
    if clocked is not None and clocked < counted.compiled:
        yield f"rank {rank.rank}: {counted.compiled} artifacts compiled, and the clock saw {clocked} compilations"
    generating = _spent(rank, GENERATING_PHASES)
    if counted.compiled == 0 and generating > 0:
        yield f"rank {rank.rank}: {generating:.2f} s of code generation with 0 artifacts compiled"


def _spent(rank: RankTimes, names: Sequence[str]) -> float:
    return sum(phase.s for phase in rank.phases if phase.name in names)


def exercised(case: Case) -> Iterator[Reason]:
    """SP is on, and the pass did not rewrite what it should have."""
    if not case.shape.sequence_parallelism or case.evidence is None:
        return
    if set(case.checks) == {Check.AUDIT} or case.broken:
        return
    found = case.evidence.exercised.sequence_parallelism
    if found is None:
        yield Reason(Verdict.NOT_EXERCISED, "sequence parallelism is on and no graph was compiled for it")
    elif not found.expected:
        yield Reason(Verdict.NOT_EXERCISED, "sequence parallelism is on and the graph holds nothing for it to rewrite")
    elif len(found.per_rank) != _ranks(case):
        text = f"{len(found.per_rank)} ranks told what the SP pass rewrote where {_ranks(case)} ran"
        yield Reason(Verdict.INVALID_MEASUREMENT, text)
    elif any(matched < wanted for matched, wanted in shortfall_by_rank(found)):
        of = found.expected_per_rank if len(set(found.expected_per_rank)) > 1 else found.expected
        text = f"the SP pass rewrote {found.per_rank} of {of} all-reduces per rank"
        yield Reason(Verdict.NOT_EXERCISED, text)


_WANTED = {
    PatchMode.ON: {PatchState.NATIVE, PatchState.APPLIED},
    PatchMode.OFF: {PatchState.REMOVED},
    PatchMode.NATIVE: {PatchState.NATIVE, PatchState.ABSENT},
}


def patches(case: Case) -> Iterator[Reason]:
    """A patch is not in the state that was asked for, or nobody knows in which it is."""
    if case.evidence is None:
        return
    for patch, mode in case.patches.items():
        state = case.evidence.patches.get(patch)
        if state is None:
            if not case.broken:
                yield Reason(Verdict.INVALID_MEASUREMENT, f"the engine did not say in which state {patch} is")
        elif state is PatchState.TARGET_MISSING:
            yield Reason(
                Verdict.INVALID_MEASUREMENT,
                f"patch-target-missing: {patch} could not be brought to {mode} in this version; "
                "the engine's log names what is gone",
            )
        elif state not in _WANTED[mode] and not _nothing_to_patch(patch, state, case.shape):
            yield Reason(Verdict.INVALID_MEASUREMENT, f"{patch} was asked to be {mode} and is {state}")
        elif state is PatchState.ABSENT:
            yield Reason(None, _absent(patch, mode))


def _nothing_to_patch(patch: Patch, state: PatchState, shape: Shape) -> bool:
    """A version without SP has no guards of SP, whatever is asked of them."""
    return patch is Patch.FULL_GRAPH_SP and state is PatchState.ABSENT and not shape.sequence_parallelism


def _absent(patch: Patch, mode: PatchMode) -> str:
    if mode is PatchMode.NATIVE:
        return f"this version has no {patch} of its own and none was asked for"
    return f"this version has no sequence parallelism, so there is nothing for {patch} to be {mode} for"


def noted(case: Case) -> Iterator[Reason]:
    """What is worth knowing of how the cell was resolved."""
    return (Reason(None, text) for text in case.notes)


def downgraded(case: Case) -> Iterator[Reason]:
    """A setting the user wrote is not what runs."""
    for change in case.changes:
        if change.written:
            why = change.reason or "the engine gave no reason"
            where = f" [{change.where}]" if change.where else ""
            yield Reason(
                Verdict.DOWNGRADED,
                f"{change.key} was asked to be {change.requested!r} and runs as {change.effective!r}: {why}{where}",
            )


def duplicate(case: Case) -> Iterator[Reason]:
    """Another cell of the sweep resolves to the same settings."""
    if case.duplicate_of is not None:
        yield Reason(Verdict.DUPLICATE, f"same effective settings as {case.duplicate_of}: run once, result shared")
