"""Which arms a cell needs, and which of them it can share with other cells.

The *replicated* arm answers "what would this model compute without SP": SP is off and everything that only shapes how
SP compiles is left to the engine, so that cells which differ in that alone share one arm. The *reference* arm answers
"what should it compute at all": one rank, eager, nothing patched.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from service.domain.cell import Cell
from service.domain.fingerprint import digest
from workers.protocol import (
    ONE_ORDER,
    BatchPlan,
    Check,
    Environment,
    Patch,
    PatchMode,
    Policy,
    Role,
    Settings,
    Shape,
)

SP = "compilation_config.pass_config.enable_sp"

MEANS_NOTHING_WITHOUT_SP = (
    SP,
    "compilation_config.pass_config.fuse_gemm_comms",
    "compilation_config.pass_config.sp_min_token_num",
)
SHAPES_SP_ONLY = (
    *MEANS_NOTHING_WITHOUT_SP,
    "compilation_config.splitting_ops",
    "compilation_config.use_inductor_graph_partition",
)
PARALLEL = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "distributed_executor_backend",
    "enable_expert_parallel",
)
STEPS = {
    "max_num_batched_tokens": "max_num_batched_tokens",
    "max_num_seqs": "max_num_seqs",
    "max_model_len": "max_model_len",
    "chunked_prefill": "enable_chunked_prefill",
    "async_scheduling": "async_scheduling",
}
"""What of a shape decides how requests are put together to steps → the setting that fixes it."""


@dataclass(frozen=True)
class ArmNeed:
    """One engine start, as content. ``taps``: the residual is recorded.

    ``perturbations``: how often the plan is run again with a rounding error in the embedding, for the noise floor.
    ``evaluation``: fields of an ``Evaluation``, which then runs in place of the plan.
    """

    role: Role
    engine: Settings
    patches: dict[Patch, PatchMode]
    env: dict[str, str]
    batch: dict[str, Any]
    taps: bool
    perturbations: int = 0
    evaluation: dict[str, Any] | None = None

    def key(self, environment: Environment) -> str:
        """Equal for arms that compute the same, whatever part they play in a run."""
        content = [self.engine, self.patches, self.env, self.batch, self.taps, self.perturbations, self.evaluation]
        return digest([content, environment.model_dump()])


@dataclass(frozen=True)
class RunNeeds:
    """``own`` arms run in the cell's own run, in this order; the others are shared and run first."""

    own: tuple[ArmNeed, ...]
    probe: ArmNeed | None
    replicated: ArmNeed | None
    reference: ArmNeed | None
    evaluated: ArmNeed | None = None

    @property
    def shared(self) -> tuple[ArmNeed, ...]:
        return tuple(need for need in (self.probe, self.replicated, self.reference, self.evaluated) if need)

    @property
    def stand_ins(self) -> tuple[ArmNeed, ...]:
        """Shared arms that are the cell's own as well: they run just what it asks for."""
        evaluated = self.evaluated if self.evaluated and self.evaluated.role is Role.EVAL else None
        return tuple(need for need in (self.probe, evaluated) if need)


def needs(cell: Cell, shape: Shape, plan: BatchPlan | None = None) -> RunNeeds:
    """What ``cell``, resolved to ``shape``, has to run.

    ``plan``: the requests, resolved too; all arms are given the same. Without it, what the matrix wrote.
    """
    found = _needs(cell, shape, plan)
    return found if not cell.absent else _map(found, lambda need: _without(need, cell.absent))


def _map(found: RunNeeds, change: Callable[[ArmNeed], ArmNeed]) -> RunNeeds:
    own = tuple(change(need) for need in found.own)
    shared = (found.probe, found.replicated, found.reference, found.evaluated)
    return RunNeeds(own, *(None if need is None else change(need) for need in shared))


def _without(need: ArmNeed, absent: Collection[str]) -> ArmNeed:
    """A vLLM without SP cannot be told to leave it off."""
    return replace(need, engine={key: value for key, value in need.engine.items() if key not in absent})


def _needs(cell: Cell, shape: Shape, plan: BatchPlan | None) -> RunNeeds:
    batch = cell.batch if plan is None else plan.model_dump()
    asked = ArmNeed(Role.PROBE, dict(cell.engine), dict(cell.patches), dict(cell.env), batch, taps=False)
    found = _timed_and_compared(cell, shape, asked)
    if Check.EVAL not in cell.checks:
        return found
    own, shared = _evaluating(replace(asked, role=Role.EVAL, batch={}, evaluation=cell.evaluation), shape)
    return replace(found, own=(*found.own, *own), evaluated=shared)


def _evaluating(asked: ArmNeed, shape: Shape) -> tuple[tuple[ArmNeed, ...], ArmNeed | None]:
    """The arm of the cell's own that evaluates, and the shared one: its twin with SP off, or in its place."""
    twin = replace(replicated(asked), role=Role.EVAL_REPLICATED, taps=False)
    if shape.sequence_parallelism:
        return (asked,), twin
    return ((), replace(twin, role=Role.EVAL)) if _same_without_sp(asked, twin) else ((asked,), None)


def _timed_and_compared(cell: Cell, shape: Shape, asked: ArmNeed) -> RunNeeds:
    own: list[ArmNeed] = []
    if Check.COMPILE in cell.checks and shape.compiled:
        own += [replace(asked, role=Role.COLD), replace(asked, role=Role.WARM)]
    compares = {Check.RESIDUAL, Check.OUTPUTS} & set(cell.checks)
    if not compares:
        return RunNeeds(tuple(own), None, None, None)
    tapped = replace(asked, taps=True)
    twin = replicated(asked, 0 if shape.tensor_parallel_size <= ONE_ORDER else Policy().perturbations)
    reference_wanted = Check.OUTPUTS in cell.checks or not shape.sequence_parallelism
    reference_need = reference(asked, _same_steps(cell, shape)) if reference_wanted else None
    if shape.sequence_parallelism:
        return RunNeeds((*own, tapped), None, twin, reference_need)
    if _same_without_sp(tapped, twin):
        return RunNeeds(tuple(own), twin, None, reference_need)
    return RunNeeds((*own, tapped), None, None, reference_need)


def replicated(asked: ArmNeed, perturbations: int = 0) -> ArmNeed:
    """``asked`` with SP off."""
    engine = {key: value for key, value in asked.engine.items() if key not in SHAPES_SP_ONLY}
    return replace(
        asked,
        role=Role.REPLICATED,
        engine=engine | {SP: False},
        patches=_patches_on(),
        taps=True,
        perturbations=perturbations,
    )


def reference(asked: ArmNeed, same_steps: Settings | None = None) -> ArmNeed:
    """``asked`` on one rank, eager. ``same_steps``: settings that make its steps those of the cell."""
    dropped = ("compilation_config",)
    engine = {
        key: value
        for key, value in asked.engine.items()
        if key not in PARALLEL and key.partition(".")[0] not in dropped
    }
    # In full precision, whatever the cell runs in: both of its arms are held against it.
    engine |= (same_steps or {}) | {"tensor_parallel_size": 1, "enforce_eager": True, "dtype": "float32"}
    return replace(asked, role=Role.REFERENCE, engine=engine, patches=_patches_on(), env={}, taps=True)


def _same_steps(cell: Cell, shape: Shape) -> Settings:
    """Settings of the cell that one rank would resolve differently where nothing was written.

    vLLM's defaults for the size of a batch grow with the number of ranks on CPU, and asynchronous scheduling hangs on
    the executor and on pipeline stages: prompts would be cut elsewhere and share other steps. Prefix caching hits
    whole blocks, whose size hangs on the attention backend and so on the dtype.
    """
    fields = dict(STEPS)
    if cell.engine.get("enable_prefix_caching"):
        fields["block_size"] = "block_size"
    found = {setting: getattr(shape, field) for field, setting in fields.items()}
    # A shape without the size of a batch is one that nobody resolved.
    known = shape.max_num_batched_tokens is not None
    return {setting: value for setting, value in found.items() if known and value is not None}


def _patches_on() -> dict[Patch, PatchMode]:
    return dict.fromkeys(Patch, PatchMode.ON)


def _same_without_sp(one: ArmNeed, other: ArmNeed) -> bool:
    return _without_sp(one) == _without_sp(other)


def _without_sp(need: ArmNeed) -> ArmNeed:
    engine = {key: value for key, value in need.engine.items() if key not in MEANS_NOTHING_WITHOUT_SP}
    return replace(need, role=Role.REPLICATED, engine=engine, perturbations=0)
