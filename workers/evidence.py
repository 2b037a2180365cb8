"""From what the arms of a run left behind to its evidence.

The controller imports this module with the actor's class. It has no torch, so the comparison is imported where it runs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workers.outputs import compare_outputs
from workers.probes.timeline import RawEvent, rank_times
from workers.protocol import (
    ROUNDING,
    ArmReport,
    Artifacts,
    Check,
    Compile,
    CompileTimes,
    Environment,
    Evidence,
    Exercised,
    Fallback,
    Guard,
    OutputComparison,
    Patch,
    PatchState,
    RankArtifacts,
    Residual,
    Role,
    RunSpec,
    SequenceParallelism,
    Shape,
)

if TYPE_CHECKING:
    from workers.residual.compare import Question

Result = dict[str, Any]
"""``result.json`` of an arm, see ``workers.engine.arm``."""


def compile_times(
    report: ArmReport, result: Result, events: Sequence[RawEvent], begin: float, end: float
) -> CompileTimes:
    """The time line of every rank, and vLLM's counters as proof of cold or warm."""
    timers = {rank["rank"]: rank["compile_seconds"] for rank in result["ranks"]}
    ranks = [_artifacts(rank) for rank in result["ranks"]]
    return CompileTimes(
        total_s=report.wall_s,
        ranks=rank_times(events, begin, end, timers),
        artifacts=Artifacts(
            saved=sum(rank.saved for rank in ranks), loaded=sum(rank.loaded for rank in ranks), ranks=ranks
        ),
    )


def _artifacts(rank: dict[str, Any]) -> RankArtifacts:
    counters = rank["counters"]
    return RankArtifacts(
        rank=rank["rank"],
        saved=counters["num_compiled_artifacts_saved"],
        loaded=counters["num_compiled_artifacts_loaded"],
        compiled=counters["num_inductor_compiles"],
    )


def sequence_parallelism(result: Result, shape: Shape) -> SequenceParallelism | None:
    """What the pass should have rewritten and what it did, summed over the graphs of each rank.

    ``None`` when SP is off, or nothing was compiled here (a warm start loads what the pass had rewritten before).
    """
    censuses = [rank["census"] for rank in result["ranks"]]
    if not any(censuses) or not shape.sequence_parallelism:
        return None
    wanted = [sum(g["all_reduce_before"] for g in graphs if g["applicable"]) for graphs in censuses]
    done = [
        sum(g["all_reduce_before"] - g["all_reduce_after"] for g in graphs if g["applicable"]) for graphs in censuses
    ]
    return SequenceParallelism(expected=max(wanted), matched=min(done), per_rank=done)


def residuals(spec: RunSpec, probe: Path | None, found_sp: SequenceParallelism | None = None) -> list[Residual]:
    """Probe against the replicated arm, and each of them against the TP=1 reference.

    That reference is in full precision. Under SP the probe may be farther from it than the replicated arm is, by no
    more than the policy's factor: the distance of the replicated arm is its floor.
    """
    found = []
    sp = spec.shape.sequence_parallelism
    # A pass that rewrote nothing leaves every rank with the whole residual: that is no fault of the residual.
    scattered = sp and not (found_sp is not None and not any(found_sp.per_rank))
    if probe and spec.replicated and sp:
        found.append(_residual(spec, (Role.PROBE, probe), (Role.REPLICATED, Path(spec.replicated)), scattered))
    if spec.reference:
        reference = (Role.REFERENCE, Path(spec.reference))
        if sp and spec.replicated:
            found.append(_residual(spec, (Role.REPLICATED, Path(spec.replicated)), reference, False))
        if probe:
            found.append(_residual(spec, (Role.PROBE, probe), reference, scattered))
    return found


def _noise(spec: RunSpec, subject: Role, control: Path, against: Role) -> tuple[float, ...] | None:
    """The measured noise floor of a comparison; ``None`` where none was measured and a model has to do."""
    from workers.residual.noise import distances, measured_floor
    from workers.residual.taps import load, site_count

    sites = site_count(spec.shape.layers)
    if against is Role.REPLICATED:
        runs = [
            (load(folder, 1), _same_input(spec, folder, control)) for folder in sorted(control.glob(f"{ROUNDING}-*"))
        ]
        return measured_floor(load(control, 1), runs, sites)
    if subject is Role.PROBE and spec.shape.sequence_parallelism and spec.replicated:
        replicated = Path(spec.replicated)
        return distances(load(replicated, 1), load(control, 1), sites, _same_input(spec, replicated, control))
    return None


def _same_input(spec: RunSpec, one: Path, other: Path) -> frozenset[int]:
    from workers.residual.steps import same_input

    answers = [json.loads((folder / "result.json").read_text())["outputs"] for folder in (one, other)]
    return same_input(spec.batch, *answers)


def _residual(spec: RunSpec, subject: tuple[Role, Path], control: tuple[Role, Path], scattered: bool) -> Residual:
    from workers.residual.compare import ONE_ORDER, Question, compare
    from workers.residual.taps import NoTaps, load, site_count

    ranks = spec.shape.tensor_parallel_size
    question = Question(
        subject=subject[0],
        against=control[0],
        scattered=scattered,
        # A sum of two has one order; of more it has several, and one rank sums in yet another.
        bitwise=ranks <= ONE_ORDER and control[0] is Role.REPLICATED,
        sites=site_count(spec.shape.layers),
        noise_factor=spec.policy.noise_factor,
    )
    try:
        recorded = load(subject[1], ranks)
        whole = load(control[1], 1)
        noise = None if question.bitwise else _noise(spec, subject[0], control[1], control[0])
    except NoTaps as error:
        return _nothing(question, str(error))
    steps = None if question.bitwise else _same_input(spec, subject[1], control[1])
    return compare(recorded, whole, replace(question, noise=noise, steps=steps))


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


def outputs(spec: RunSpec, results: dict[Role, Result]) -> list[OutputComparison]:
    """The probe's tokens against the replicated arm's and against the reference's."""
    probe = results.get(Role.PROBE)
    if Check.OUTPUTS not in spec.checks or probe is None:
        return []
    found = []
    for role in (Role.REPLICATED, Role.REFERENCE):
        control = results.get(role)
        if control is None:
            continue
        found.append(compare_outputs(probe["outputs"], control["outputs"], (Role.PROBE, role), spec.policy))
    return found


def assemble(
    spec: RunSpec,
    reports: list[ArmReport],
    results: dict[Role, Result],
    times: dict[Role, CompileTimes],
    shared: dict[Role, Result],
) -> Evidence:
    """All evidence of a run. ``results`` and ``times`` hold the arms that came through, ``shared`` those run before."""
    results = shared | results
    probe = results.get(Role.PROBE)
    witness = probe or results.get(Role.COLD) or next(iter(results.values()), None)
    own = {report.role: Path(report.folder) for report in reports if report.role in results}
    probe_folder = own.get(Role.PROBE) or (Path(spec.probe) if spec.probe else None)
    compiled = next((results[role] for role in (Role.PROBE, Role.COLD) if role in results), None)
    found_sp = sequence_parallelism(compiled, spec.shape) if compiled else None
    patches = {Patch(name): PatchState(state) for name, state in (witness or {}).get("patches", {}).items()}
    return Evidence(
        policy=spec.policy,
        environment=Environment.model_validate(witness["environment"]) if witness else None,
        patches=patches,
        arms=reports,
        compile=Compile(cold=times.get(Role.COLD), warm=times.get(Role.WARM)),
        exercised=Exercised(sequence_parallelism=found_sp),
        fallback=Fallback(calls=None, slow_path_s=None, state=patches.get(Patch.FALLBACK_FAST_PATH)),
        residual=residuals(spec, probe_folder, found_sp) if Check.RESIDUAL in spec.checks else [],
        outputs=outputs(spec, results),
        guards=_guards(witness),
    )


def _guards(witness: Result | None) -> list[Guard]:
    """A guard holds when it holds on every rank."""
    if witness is None:
        return []
    by_rank = [[Guard.model_validate(guard) for guard in rank["guards"]] for rank in witness["ranks"]]
    joined = []
    for answers in zip(*by_rank, strict=True):
        failing = [rank for rank, guard in enumerate(answers) if guard.held is not True]
        joined.append(answers[failing[0]] if failing else answers[0])
    return joined
