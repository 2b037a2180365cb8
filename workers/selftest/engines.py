"""The engines of the self-test: which settings, which batches, and which faults are switched on one after the other."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from workers.arms import Arm
from workers.protocol import ROUNDING, ArmSpec, BatchPlan, Outcome, Patch, PatchMode, Role, Settings, Shape, Trial
from workers.selftest.catalogue import (
    AT_THE_THRESHOLD,
    BELOW,
    CLEAN,
    FAULT_PLAN,
    LAST_TOKEN,
    LAYERS,
    NOISE_SEEDS,
    PIPELINE,
    RANKS,
    REPLICATED,
    SP,
    THRESHOLD,
    UNGUARDED,
    Entry,
    Healthy,
    plans,
    rounding,
)
from workers.selftest.graph_faults import VARIABLE, GraphFault, to_text

SP_SETTINGS = "compilation_config.pass_config"
HIDDEN = 128
STAGES = 2

BASE: Settings = {
    "model": f"tiny:llama?layers={LAYERS}&hidden={HIDDEN}",
    "dtype": "float32",
    "tensor_parallel_size": RANKS,
    "max_model_len": LAST_TOKEN,
    "max_num_batched_tokens": LAST_TOKEN,
}
WITH_SP: Settings = {f"{SP_SETTINGS}.enable_sp": True, f"{SP_SETTINGS}.sp_min_token_num": THRESHOLD}


@dataclass(frozen=True, eq=False)
class Engine:
    """One engine start. ``stages``: pipeline stages. ``threshold``: ``sp_min_token_num``, ``None`` without SP."""

    name: str
    role: Role
    settings: Settings
    threshold: int | None = None
    stages: int = 1
    guards: PatchMode = PatchMode.ON

    @property
    def shape(self) -> Shape:
        """What the checker is told of it."""
        return Shape(
            tensor_parallel_size=RANKS,
            pipeline_parallel_size=self.stages,
            layers=LAYERS,
            hidden_size=HIDDEN,
            dtype="float32",
            sequence_parallelism=self.threshold is not None,
            sp_min_token_num=self.threshold,
            full_graph=self.guards is PatchMode.ON,
            compiled=True,
        )


def engines(entries: list[Entry]) -> dict[str, Engine]:
    """Those that the faults ``entries`` need, by name; the one that says what is right comes first."""
    ends = sorted({BELOW[1], AT_THE_THRESHOLD[1], CLEAN[1], *(e.compiled[1] for e in entries if e.compiled)})
    ranges = {"compilation_config.compile_ranges_endpoints": [end for end in ends if end < LAST_TOKEN]}
    every = [
        Engine(REPLICATED, Role.REPLICATED, BASE | {f"{SP_SETTINGS}.enable_sp": False}),
        Engine(SP, Role.PROBE, BASE | WITH_SP | ranges, THRESHOLD),
        Engine(PIPELINE, Role.PROBE, BASE | WITH_SP | {"pipeline_parallel_size": STAGES}, THRESHOLD, STAGES),
        Engine(UNGUARDED, Role.PROBE, BASE | WITH_SP, THRESHOLD, guards=PatchMode.OFF),
    ]
    needed = {REPLICATED, SP, *(entry.engine for entry in entries)}
    return {engine.name: engine for engine in every if engine.name in needed}


def trials(engine: Engine, entries: list[Entry], healthy: list[Healthy], named: dict[str, BatchPlan]) -> list[Trial]:
    """What ``engine`` is put through: the batches that have to be right first, then the faults."""
    every = named | plans()
    if engine.name == REPLICATED:
        found = [Trial(name=name, batch=plan) for name, plan in every.items()]
        found += [
            Trial(name=f"{ROUNDING}-{seed}", batch=every[FAULT_PLAN], fault=rounding(seed)) for seed in NOISE_SEEDS
        ]
    else:
        # With nothing wrong: what faults of the replicated arm are held against, and what comes to light by them.
        found = [Trial(name=FAULT_PLAN, batch=every[FAULT_PLAN])] if engine.name == SP else []
        found += [
            Trial(name=run.name, batch=every[run.plan], fault=None if run.noise is None else rounding(run.noise))
            for run in healthy
            if run.engine == engine.name
        ]
    return found + [
        Trial(name=entry.name, batch=every[entry.plan], fault=entry.fault if entry.switched else None)
        for entry in entries
        if entry.engine == engine.name
    ]


def record(engine: Engine, entries: list[Entry], todo: list[Trial], folder: Path, models: Path) -> Outcome:
    """Run ``engine`` through ``todo``; what it recorded lies below ``folder``, a folder to each trial."""
    compiled = [
        GraphFault(entry.fault.kind, *entry.compiled, entry.fault.rank)
        for entry in entries
        if entry.compiled and entry.engine == engine.name
    ]
    spec = ArmSpec(
        role=engine.role,
        key=engine.name,
        engine=engine.settings,
        patches=dict.fromkeys(Patch, PatchMode.ON) | {Patch.FULL_GRAPH_SP: engine.guards},
        env={VARIABLE: to_text(compiled)},
        batch=BatchPlan(waves=[[2]], max_tokens=1),
        taps=True,
        folder=str(folder / engine.name),
        cache_root=str(folder / engine.name / "cache"),
        models_dir=str(models),
        timeout_s=1800.0,
        # The engine that is started first leaves there what the others need not make again.
        known_models=str(folder / REPLICATED / "cache"),
        toolchain=str(folder / "toolchain"),
        trials=todo,
    )
    with Arm(spec, RANKS * engine.stages, sys.executable) as arm:
        for event in arm.follow():
            if event["kind"] == "phase-begin":
                rank = "" if event.get("rank") is None else f", rank {event['rank']}"
                print(f"{engine.name}: {event['name']}{rank}", flush=True)
    report = arm.report()
    if report.outcome is not Outcome.OK:
        print(f"the {engine.name} engine ended as {report.outcome}: {report.failure}", flush=True)
    return report.outcome
