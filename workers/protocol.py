"""Messages between the controller, the run actor and the engine process.

Everything here crosses a process boundary as JSON, so it is plain data: pydantic models without behaviour, frozen,
refusing fields they do not know. ``PROTOCOL`` goes up when a field changes its meaning.

Times are seconds. Tensors never travel here: they are files in an arm's folder.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from pydantic import ValidationError as ValidationError  # what a message is refused with

PROTOCOL = 1

Settings = dict[str, Any]
"""Dotted key → JSON value, in vLLM's own names."""


class Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Patch(StrEnum):
    """A change of behaviour of the engine process."""

    FULL_GRAPH_SP = "full_graph_sp"
    FALLBACK_FAST_PATH = "fallback_fast_path"


class PatchMode(StrEnum):
    """What is asked of a patch: make sure it is there, take it away, or leave it as found."""

    ON = "on"
    OFF = "off"
    NATIVE = "native"


class PatchState(StrEnum):
    """What was found once the request was carried out. ``absent``: left as found, and this version has none."""

    NATIVE = "native"
    APPLIED = "applied"
    REMOVED = "removed"
    ABSENT = "absent"
    TARGET_MISSING = "target-missing"


class Check(StrEnum):
    """What a cell wants to know."""

    AUDIT = "audit"
    COMPILE = "compile"
    RESIDUAL = "residual"
    OUTPUTS = "outputs"


class Role(StrEnum):
    """What an engine start inside a run is for."""

    COLD = "cold"
    WARM = "warm"
    PROBE = "probe"
    REPLICATED = "replicated"
    REFERENCE = "reference"


class Outcome(StrEnum):
    OK = "ok"
    CRASHED = "crashed"
    TIMED_OUT = "timed-out"
    CANCELLED = "cancelled"


# --- catalogue: which settings this engine environment knows -----------------------------------------------------


class KeyInfo(Message):
    """One setting. ``type`` is the annotation as vLLM writes it; ``nested`` when dotted keys reach into it."""

    type: str
    nested: bool = False


class Environment(Message):
    """Where evidence was taken. ``device`` is ``cpu`` or the accelerator's name; ``devices`` counts accelerators."""

    vllm: str
    torch: str
    ray: str | None
    python: str
    device: str
    devices: int
    cores: int


class Catalogue(Message):
    """Answer of ``python -m workers.engine describe``."""

    protocol: int = PROTOCOL
    environment: Environment
    keys: dict[str, KeyInfo]


# --- audit: requested → effective, without an engine -----------------------------------------------------------------


class AuditCell(Message):
    id: str
    engine: Settings
    patches: dict[Patch, PatchMode]


class AuditRequest(Message):
    """All cells in one request share ``env`` (environment variables of the engine) and run in one process."""

    protocol: int = PROTOCOL
    cells: list[AuditCell]
    models_dir: str


class Problem(Message):
    """A setting the engine refuses. ``key`` is ``None`` when it cannot be pinned to one setting."""

    key: str | None
    message: str
    hint: str | None = None


class Change(Message):
    """A setting whose effective value is not the one that was requested (or, where nothing was, not the default).

    ``requested`` holds what the user wrote (``None`` when nothing was written), ``written`` tells the two apart.
    ``reason`` is the engine's own warning where it gave one; ``where`` is the place in its source that wrote the value.
    """

    key: str
    requested: Any
    effective: Any
    written: bool
    reason: str | None
    where: str | None


class Shape(Message):
    """What the rest of the run needs to know of a resolved configuration."""

    tensor_parallel_size: int
    pipeline_parallel_size: int
    layers: int
    hidden_size: int
    dtype: str
    sequence_parallelism: bool
    full_graph: bool
    compiled: bool


class AuditedCell(Message):
    id: str
    problems: list[Problem]
    effective: Settings | None
    changes: list[Change]
    patches: dict[Patch, PatchState]
    shape: Shape | None


class AuditReply(Message):
    protocol: int = PROTOCOL
    environment: Environment
    cells: list[AuditedCell]


class Guard(Message):
    """``held`` is ``None`` when the guard could not be checked here; ``detail`` says why or what was seen."""

    name: str
    held: bool | None
    detail: str


class Diagnosis(Message):
    """What ``python -m workers.engine diagnose`` finds: the patches as this version has them, and the guards."""

    protocol: int = PROTOCOL
    environment: Environment
    patches: dict[Patch, PatchState]
    guards: list[Guard]


# --- runs --------------------------------------------------------------------------------------------------------


class BatchPlan(Message):
    """Deterministic requests. Each wave is submitted at once and run to its end before the next starts.

    ``waves`` holds prompt lengths in tokens; token ids are drawn from ``seed``.
    """

    seed: int = 0
    max_tokens: int = 4
    logprobs: int = 5
    waves: list[list[int]] = [[1], [2, 3], [5, 1, 8], [17, 4]]


ROUNDING = "perturbed"
"""The kind of fault that is none: a rounding error in every element, by which the noise floor is measured."""


class Fault(Message):
    """A known fault, switched on in a running engine by the self-test. The checker never sees it.

    ``site`` and ``rank``: where; ``None`` means everywhere. For a collective ``site`` counts its calls within a step.
    """

    kind: str
    site: int | None = None
    rank: int | None = None
    seed: int = 0


class Trial(Message):
    """One more batch plan in an engine that runs already. It is recorded in the folder ``name`` below the arm's."""

    name: str
    batch: BatchPlan
    fault: Fault | None = None


class ArmSpec(Message):
    """One engine start. ``key`` addresses it by content: equal keys mean equal settings, plan, patches and versions.

    ``known_models``: a cache root from which vLLM's descriptions of model classes are taken over, which spares an arm
    that is not timed a subprocess. They hold nothing compiled. ``trials`` are run after the batch plan, one by one.
    """

    role: Role
    key: str
    engine: Settings
    patches: dict[Patch, PatchMode]
    env: dict[str, str]
    batch: BatchPlan
    taps: bool
    folder: str
    cache_root: str
    models_dir: str
    timeout_s: float
    known_models: str | None = None
    trials: list[Trial] = []


class Policy(Message):
    """How evidence is judged. Stored with the evidence, so another policy can be applied later without a new run.

    ``noise_factor``: a residual passes where bit equality is not owed while its score is at most this.
    ``perturbations``: how often the replicated arm is run again with a rounding error in its embedding, to measure the
    noise floor.
    ``logprob_atol``: log-probabilities closer than this are equal (five digits).
    ``flip_margin``: a token that differs is a flip, not a tie, when the reference prefers its own by more than this; in
    formats with fewer digits than float32, by more than ``reduced_precision_flip_margin``.
    """

    noise_factor: float = 3.0
    perturbations: int = 4
    logprob_atol: float = 1e-5
    flip_margin: float = 1e-3
    reduced_precision_flip_margin: float = 0.25


class RunSpec(Message):
    """One attempt at a cell, or at an arm that several cells share.

    ``replicated`` and ``reference`` are folders of shared arms that have already run; ``probe`` is one too, where the
    cell's own probe is such an arm.
    """

    protocol: int = PROTOCOL
    run_id: str
    cell: str
    checks: list[Check]
    arms: list[ArmSpec]
    shape: Shape
    batch: BatchPlan = BatchPlan()
    policy: Policy = Policy()
    probe: str | None = None
    replicated: str | None = None
    reference: str | None = None


class Event(Message):
    """One thing that happened, in the order it did. ``at`` is Unix time."""

    kind: Literal["arm-started", "phase", "arm-finished", "evidence"]
    at: float
    arm: Role | None = None
    rank: int | None = None
    data: dict[str, Any] = {}


# --- evidence ----------------------------------------------------------------------------------------------------


class Phase(Message):
    name: str
    s: float


class RankTimes(Message):
    """``total_s`` is the outer wall time of the arm: the phases and ``unaccounted_s`` add up to it on every rank."""

    rank: int
    total_s: float
    phases: list[Phase]
    unaccounted_s: float


class RankArtifacts(Message):
    """vLLM's own compilation counters on one rank."""

    rank: int
    saved: int
    loaded: int
    compiled: int


class Artifacts(Message):
    """Sums over the ranks, and each rank's counters as proof."""

    saved: int
    loaded: int
    ranks: list[RankArtifacts]


class CompileTimes(Message):
    total_s: float
    ranks: list[RankTimes]
    artifacts: Artifacts


class Compile(Message):
    cold: CompileTimes | None
    warm: CompileTimes | None


class SequenceParallelism(Message):
    """``expected``: all-reduces before the pass, each of which it should rewrite. ``matched``: those it did.

    Both are per rank; ``matched`` is the smallest over the ranks, ``per_rank`` shows each.
    """

    expected: int | None
    matched: int | None
    per_rank: list[int]


class Exercised(Message):
    sequence_parallelism: SequenceParallelism | None


class Fallback(Message):
    calls: int | None
    slow_path_s: float | None
    state: PatchState | None


class Divergence(Message):
    """The first place where the residual is wrong, in the order step, site, rank.

    ``tokens`` counts the wrong rows of that step on that rank. ``score`` is the relative error in units of the noise
    floor; it is ``None`` where the numbers cannot be compared (NaN, wrong size).
    """

    site: str
    rank: int
    step: int
    pattern: str
    tokens: int
    score: float | None


class Floor(StrEnum):
    """What a residual is held to: bit equality, a noise floor that was measured, or one that is modelled."""

    BITWISE = "bitwise"
    MEASURED = "measured"
    MODELLED = "modelled"


class SiteScore(Message):
    """Scores of one site on one rank over all steps. ``floor``: the relative error that scores 1 there."""

    site: str
    rank: int
    floor: float
    median: float
    p99: float
    max: float


class Residual(Message):
    """What the comparison of ``subject``'s residual with ``against``'s saw.

    ``sites``, ``steps``, ``ranks`` and ``tokens`` (over all steps) count what was compared, ``elements`` how many
    numbers; ``missing`` lists what should have been compared and was not. ``scattered``: the subject's ranks hold parts
    of the residual (SP); otherwise each holds the whole, and ``replicas_equal`` says whether they agree.
    ``steps_left_out``: steps in which the two arms were given different tokens, since their outputs had parted before.
    """

    subject: Role
    against: Role
    sites: int
    steps: int
    ranks: int
    tokens: int
    elements: int
    scattered: bool
    missing: list[str]
    bitwise_equal: bool | None
    bitwise_required: bool
    worst_score: float | None
    floor: Floor = Floor.MODELLED
    scores: list[SiteScore] = []
    replicas_equal: bool | None
    first_divergence: Divergence | None
    steps_left_out: int = 0


class OutputClass(StrEnum):
    IDENTICAL = "identical"
    DRIFT = "drift"
    FLIP = "flip"
    GARBAGE = "garbage"


class Difference(Message):
    """The first token that differs in one request.

    ``margin``: by how much (log-probability) the other arm preferred its own token.
    """

    request: int
    position: int
    expected: int
    found: int
    margin: float | None


class OutputComparison(Message):
    """``klass`` is ``None`` when the two arms could not be compared; ``problem`` says why."""

    subject: Role
    against: Role
    klass: OutputClass | None
    problem: str | None = None
    compared_tokens: int
    worst_logprob_difference: float | None
    first_difference: Difference | None


class Failure(Message):
    """How an arm died: which rank in which phase, what it said, and the last lines of its own log."""

    phase: str | None
    rank: int | None
    message: str
    log_tail: list[str]


class ArmReport(Message):
    role: Role
    key: str
    outcome: Outcome
    wall_s: float
    folder: str
    failure: Failure | None
    peak_rss_bytes: int | None = None


class Evidence(Message):
    """All that one run found out. What was not looked at is ``None``, never zero."""

    protocol: int = PROTOCOL
    policy: Policy
    environment: Environment | None
    patches: dict[Patch, PatchState]
    arms: list[ArmReport]
    compile: Compile
    exercised: Exercised
    fallback: Fallback | None
    residual: list[Residual]
    outputs: list[OutputComparison]
    guards: list[Guard]
