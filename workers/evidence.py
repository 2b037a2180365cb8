"""From what the arms of a run left behind to its evidence.

The controller imports this module with the actor's class. It has no torch, so the comparison is imported where it runs.
"""

from __future__ import annotations

import json
from pathlib import Path

from workers.accuracy import accuracy
from workers.fallback import fallback
from workers.outputs import compare_outputs
from workers.protocol import (
    AGAIN,
    ArmReport,
    Check,
    Compile,
    Environment,
    Evidence,
    Exercised,
    Guard,
    Invariant,
    OutputComparison,
    Patch,
    PatchState,
    Residual,
    Role,
    RunSpec,
    SequenceParallelism,
    Shape,
)
from workers.start_times import Result


def sequence_parallelism(result: Result, shape: Shape) -> SequenceParallelism | None:
    """What the pass should have rewritten and what it did, summed over the graphs of each rank.

    ``None`` when SP is off, or nothing was compiled here (a warm start loads what the pass had rewritten before). The
    last all-reduce of a pipeline stage goes to the next stage and not to a norm: it is none to be rewritten.
    """
    censuses = [[graph for graph in rank["census"] if graph["applicable"]] for rank in result["ranks"]]
    if not any(rank["census"] for rank in result["ranks"]) or not shape.sequence_parallelism:
        return None
    wanted = [sum(g.get("rewritable", g["all_reduce_before"]) for g in graphs) for graphs in censuses]
    done = [sum(g["all_reduce_before"] - g["all_reduce_after"] for g in graphs) for graphs in censuses]
    shortest = max(range(len(wanted)), key=lambda rank: (wanted[rank] - done[rank], wanted[rank]))
    return SequenceParallelism(
        expected=wanted[shortest], matched=done[shortest], per_rank=done, expected_per_rank=wanted
    )


def outputs(spec: RunSpec, results: dict[Role, Result]) -> list[OutputComparison]:
    """The replicated arm's tokens against its own, run again; the probe's against its and the reference's."""
    found = _outputs_again(spec)
    probe = results.get(Role.PROBE)
    if Check.OUTPUTS not in spec.checks or probe is None:
        return found
    for role in (Role.REPLICATED, Role.REFERENCE):
        control = results.get(role)
        if control is None:
            continue
        found.append(compare_outputs(probe["outputs"], control["outputs"], (Role.PROBE, role), spec.policy))
    return found


def _outputs_again(spec: RunSpec) -> list[OutputComparison]:
    """Two runs of one plan in one engine. Without SP the shared probe is the arm that ran twice."""
    shared = spec.replicated or (None if spec.shape.sequence_parallelism else spec.probe)
    if shared is None or Check.OUTPUTS not in spec.checks:
        return []
    paths = [Path(shared, AGAIN, "result.json"), Path(shared, "result.json")]
    if not all(path.exists() for path in paths):
        return []
    again, first = (json.loads(path.read_text())["outputs"] for path in paths)
    return [compare_outputs(again, first, (Role.REPLICATED, Role.REPLICATED), spec.policy)]


def assemble(
    spec: RunSpec,
    reports: list[ArmReport],
    results: dict[Role, Result],
    timed: Compile,
    shared: dict[Role, Result],
) -> Evidence:
    """All evidence of a run.

    ``results`` holds the first start of each arm that came through, ``shared`` those that ran before.
    """
    results = shared | results
    probe = results.get(Role.PROBE)
    witness = probe or results.get(Role.COLD) or results.get(Role.EVAL) or next(iter(results.values()), None)
    own = {report.role: Path(report.folder) for report in reports if report.role in results}
    probe_folder = own.get(Role.PROBE) or (Path(spec.probe) if spec.probe else None)
    compiled = next((results[role] for role in (Role.PROBE, Role.COLD, Role.EVAL) if role in results), None)
    residual, invariants = _residuals(spec, probe_folder)
    found_sp = sequence_parallelism(compiled, spec.shape) if compiled else None
    patches = {Patch(name): PatchState(state) for name, state in (witness or {}).get("patches", {}).items()}
    return Evidence(
        policy=spec.policy,
        environment=Environment.model_validate(witness["environment"]) if witness else None,
        patches=patches,
        arms=reports,
        compile=timed,
        exercised=Exercised(sequence_parallelism=found_sp),
        fallback=fallback(results, patches.get(Patch.FALLBACK_FAST_PATH)),
        residual=residual,
        outputs=outputs(spec, results),
        guards=_guards(witness),
        invariants=invariants,
        accuracy=accuracy(results) if Check.EVAL in spec.checks else None,
    )


def _residuals(spec: RunSpec, probe: Path | None) -> tuple[list[Residual], list[Invariant]]:
    if Check.RESIDUAL not in spec.checks:
        return [], []
    from workers.residual.arms import examine

    return examine(spec, probe)


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
