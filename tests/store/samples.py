"""Sweeps, cells and evidence for tests of everything that reads the store."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from service.domain.cell import Cell
from service.domain.lifecycle import State
from service.domain.verdict import Verdict
from service.store import Store, repositories
from service.store.records import NewEvent, NewSweep
from workers.protocol import (
    ArmReport,
    ArmSpec,
    Artifacts,
    AuditedCell,
    BatchPlan,
    Change,
    Check,
    Compile,
    CompileTimes,
    Difference,
    Divergence,
    Environment,
    Evidence,
    Exercised,
    Failure,
    Fallback,
    Guard,
    Invariant,
    Outcome,
    OutputClass,
    OutputComparison,
    Patch,
    PatchMode,
    PatchState,
    Phase,
    Policy,
    RankArtifacts,
    RankTimes,
    Residual,
    Role,
    RunSpec,
    SequenceParallelism,
    Shape,
)

SWEEP = "20261130-021500-ab12cd"

ENVIRONMENT = Environment(
    vllm="0.31.0", torch="2.11.0", ray="2.56.0", python="3.11.2", device="cpu", devices=0, cores=2
)

SHAPE = Shape(
    tensor_parallel_size=2,
    pipeline_parallel_size=1,
    layers=2,
    hidden_size=64,
    dtype="float32",
    sequence_parallelism=True,
    full_graph=True,
    compiled=True,
)


def sweep(sweep_id: str = SWEEP, owner: str = "controller-1", name: str = "quickstart") -> NewSweep:
    return NewSweep(
        id=sweep_id,
        name=name,
        created_at=datetime(2026, 11, 30, 2, 15, tzinfo=UTC),
        owner=owner,
        matrix={"name": name, "engine": {"model": "tiny:llama"}},
        timeouts={"cold": 1800},
    )


def cell(cell_id: str, name: str | None = None, expect: tuple[Verdict, ...] = (Verdict.PASS,)) -> Cell:
    return Cell(
        id=cell_id,
        name=name or f"cell {cell_id}",
        requested={"tensor_parallel_size": 2, "compilation_config.pass_config.enable_sp": True},
        expect=expect,
        checks=(Check.AUDIT, Check.COMPILE),
        path=("matrix",),
    )


def add_sweep(store: Store, sweep_id: str = SWEEP, cells: int = 2, **fields: str) -> list[str]:
    """A stored sweep whose cells are `c0`, `c1`, …"""
    ids = [f"c{place}" for place in range(cells)]
    with store.transaction() as session:
        repositories.create_sweep(session, sweep(sweep_id, **fields), [cell(cell_id) for cell_id in ids])
    return ids


def advance(store: Store, cell_id: str, *states: State, sweep_id: str = SWEEP) -> None:
    for state in states:
        with store.transaction() as session:
            repositories.set_cell_state(session, sweep_id, cell_id, state)


def audited(cell_id: str, reason: str = "SP needs the whole graph") -> AuditedCell:
    return AuditedCell(
        id=cell_id,
        problems=[],
        effective={"tensor_parallel_size": 2, "compilation_config.splitting_ops": []},
        changes=[
            Change(
                key="compilation_config.splitting_ops",
                requested=None,
                effective=[],
                written=False,
                reason=reason,
                where="vllm/config/vllm.py:800",
            )
        ],
        patches={Patch.FULL_GRAPH_SP: PatchState.NATIVE, Patch.FALLBACK_FAST_PATH: PatchState.APPLIED},
        shape=SHAPE,
    )


def run_spec(run_id: str, cell_id: str = "c0") -> RunSpec:
    arm = ArmSpec(
        role=Role.COLD,
        key="key",
        engine={"model": "tiny:llama"},
        patches={Patch.FULL_GRAPH_SP: PatchMode.ON},
        env={},
        batch=BatchPlan(),
        taps=False,
        folder="/artifacts/cold",
        cache_root="/artifacts/cache",
        models_dir="/models",
        timeout_s=1800.0,
    )
    return RunSpec(run_id=run_id, cell=cell_id, checks=[Check.COMPILE], arms=[arm], shape=SHAPE)


def times(total: float) -> CompileTimes:
    return CompileTimes(
        total_s=total,
        ranks=[
            RankTimes(
                rank=rank,
                total_s=total,
                phases=[Phase(name="dynamo", s=1.5), Phase(name="inductor", s=2.0)],
                unaccounted_s=total - 3.5,
            )
            for rank in range(2)
        ],
        artifacts=Artifacts(
            saved=4, loaded=0, ranks=[RankArtifacts(rank=rank, saved=2, loaded=0, compiled=2) for rank in range(2)]
        ),
    )


def residual(against: Role = Role.REPLICATED, **fields: Any) -> Residual:
    healthy: dict[str, Any] = {
        "sites": 4,
        "steps": 7,
        "ranks": 2,
        "tokens": 32,
        "elements": 4096,
        "scattered": True,
        "missing": [],
        "bitwise_equal": True,
        "bitwise_required": True,
        "worst_score": 0.0,
        "replicas_equal": True,
        "first_divergence": None,
    }
    return Residual(subject=Role.PROBE, against=against, **{**healthy, **fields})


def divergence(score: float | None = 41.5) -> Divergence:
    return Divergence(site="layers.1.mlp", rank=1, step=3, pattern="shifted", tokens=2, score=score)


def output(
    against: Role, klass: OutputClass | None = OutputClass.IDENTICAL, problem: str | None = None
) -> OutputComparison:
    difference = None
    if klass not in (OutputClass.IDENTICAL, None):
        difference = Difference(request=1, position=2, expected=7, found=9, margin=0.5)
    return OutputComparison(
        subject=Role.PROBE,
        against=against,
        klass=klass,
        problem=problem,
        compared_tokens=32,
        worst_logprob_difference=0.0,
        first_difference=difference,
    )


def arm_report(role: Role, outcome: Outcome = Outcome.OK, failure: Failure | None = None) -> ArmReport:
    return ArmReport(
        role=role, key=f"{role}-key", outcome=outcome, wall_s=12.5, folder=f"/artifacts/{role}", failure=failure
    )


SP_FOUND = SequenceParallelism(expected=5, matched=5, per_rank=[5, 5], expected_per_rank=[5, 5])


def evidence(**fields: Any) -> Evidence:
    """Evidence of a healthy run, with ``fields`` in place of what it has."""
    healthy: dict[str, Any] = {
        "policy": Policy(),
        "environment": ENVIRONMENT,
        "patches": {Patch.FULL_GRAPH_SP: PatchState.NATIVE},
        "arms": [arm_report(Role.COLD), arm_report(Role.WARM)],
        "compile": Compile(cold=times(20.0), warm=times(6.0)),
        "exercised": Exercised(sequence_parallelism=SP_FOUND),
        "fallback": Fallback(calls=12, slow_path_s=0.0, state=PatchState.APPLIED),
        "residual": [residual()],
        "outputs": [output(Role.REPLICATED)],
        "guards": [Guard(name="is_residual_scattered_for_sp", held=True, detail="full graph on every rank")],
        "invariants": [Invariant(name="token-order", held=True, checked=9, detail="9 compared")],
    }
    return Evidence(**{**healthy, **fields})


def finish(
    store: Store, cell_id: str, found: Evidence | None, run_id: str = "run-1", reason: str = "all checks held"
) -> None:
    """Take an audited cell through one run to its end."""
    advance(store, cell_id, State.QUEUED, State.LEASED, State.RUNNING)
    with store.transaction() as session:
        repositories.create_run(session, SWEEP, cell_id, run_spec(run_id, cell_id), State.RUNNING)
        repositories.finish_run(session, run_id, State.FINISHED, found)
        repositories.conclude_cell(session, SWEEP, cell_id, Verdict.PASS, True, [reason], State.FINISHED)


def phase(cell_id: str, rank: int, name: str, at: float = 1.0, **fields: Any) -> NewEvent:
    return NewEvent(
        SWEEP, at, "phase", cell_id, fields.get("run_id"), fields.get("arm", Role.COLD), rank, {"name": name}
    )
