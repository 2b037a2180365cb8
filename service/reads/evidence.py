"""Evidence as runs leave it: whole, of the size that a real run of two ranks has, and the least there can be."""

from __future__ import annotations

from workers.protocol import (
    ArmReport,
    Artifacts,
    Compile,
    CompileTimes,
    Environment,
    Evidence,
    Exercised,
    Guard,
    Invariant,
    Outcome,
    OutputClass,
    OutputComparison,
    Part,
    Phase,
    Policy,
    ProcessTimes,
    RankArtifacts,
    RankTimes,
    Residual,
    Role,
    SequenceParallelism,
    SiteScore,
    Span,
    TimedStart,
)

RANKS = 2
PHASES, PASSES, SPANS = 30, 8, 80
"""Of each rank's start, as counted in a real run of `tiny:llama`."""

SITES = 5
ENVIRONMENT = Environment(
    vllm="0.31.0", torch="2.11.0", ray="2.56.0", python="3.11.2", device="cpu", devices=0, cores=2
)


def least() -> Evidence:
    """Of a run that compared nothing and timed nothing."""
    return Evidence(
        policy=Policy(),
        environment=ENVIRONMENT,
        patches={},
        arms=[_arm(Role.COLD)],
        compile=Compile(cold=None, warm=None),
        exercised=Exercised(sequence_parallelism=None),
        fallback=None,
        residual=[],
        outputs=[],
        guards=[],
        invariants=[],
    )


def whole() -> Evidence:
    """Of a run with a cold, a warm and a probing start, everything compared."""
    cold, warm = _times(60.0), _times(20.0)
    return least().model_copy(
        update={
            "arms": [_arm(role) for role in (Role.COLD, Role.WARM, Role.PROBE)],
            "compile": Compile(
                cold=cold,
                warm=warm,
                starts=[
                    TimedStart(role=Role.COLD, repeat=1, times=cold),
                    TimedStart(role=Role.WARM, times=warm, repeat=1),
                ],
            ),
            "exercised": Exercised(
                sequence_parallelism=SequenceParallelism(expected=5, matched=5, per_rank=[5] * RANKS)
            ),
            "residual": [_residual(against) for against in (Role.REPLICATED, Role.REFERENCE)],
            "outputs": [_outputs(against) for against in (Role.REPLICATED, Role.REFERENCE)],
            "guards": [Guard(name=f"guard-{number}", held=True, detail="held on every rank") for number in range(4)],
            "invariants": [
                Invariant(name=f"invariant-{number}", held=True, checked=165, detail="165 compared")
                for number in range(20)
            ],
        }
    )


def _arm(role: Role) -> ArmReport:
    return ArmReport(
        role=role, key="50b7b200bb1633e9", outcome=Outcome.OK, wall_s=60.5, folder=f"/artifacts/{role}", failure=None
    )


def _times(total: float) -> CompileTimes:
    spans = [
        Span(
            name=f"stretch.of.time.{number}",
            begin=number / 3,
            end=number / 3 + 0.1,
            depth=1,
            thread=0,
            phase="inductor",
        )
        for number in range(SPANS)
    ]
    return CompileTimes(
        total_s=total,
        ranks=[_rank(rank, total) for rank in range(RANKS)],
        artifacts=Artifacts(
            saved=2, loaded=0, ranks=[RankArtifacts(rank=rank, saved=1, loaded=0, compiled=1) for rank in range(RANKS)]
        ),
        processes=[ProcessTimes(pid=9000 + rank, rank=rank, started=0.5, spans=spans) for rank in range(RANKS)],
    )


def _rank(rank: int, total: float) -> RankTimes:
    return RankTimes(
        rank=rank,
        total_s=total,
        phases=[Phase(name=f"phase-{number}", s=total / PHASES, begin=number / 3) for number in range(PHASES)],
        unaccounted_s=0.0,
        passes=[Part(name=f"pass.vllm.Pass{number}", s=0.01, calls=1) for number in range(PASSES)],
        ranges=[Part(name="1–8192", s=total / 2, calls=1)],
    )


def _residual(against: Role) -> Residual:
    scores = [
        SiteScore(site=f"layers.{site}.mlp", rank=rank, floor=1.9e-06, median=0.0, p99=0.0, max=0.0)
        for site in range(SITES)
        for rank in range(RANKS)
    ]
    return Residual(
        subject=Role.PROBE,
        against=against,
        sites=SITES,
        steps=33,
        ranks=RANKS,
        tokens=8364,
        elements=10_705_920,
        scattered=True,
        missing=[],
        bitwise_equal=True,
        bitwise_required=True,
        worst_score=0.0,
        scores=scores,
        replicas_equal=None,
        first_divergence=None,
    )


def _outputs(against: Role) -> OutputComparison:
    return OutputComparison(
        subject=Role.PROBE,
        against=against,
        klass=OutputClass.IDENTICAL,
        problem=None,
        compared_tokens=124,
        worst_logprob_difference=0.0,
        first_difference=None,
    )
