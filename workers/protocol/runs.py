"""What is asked of a run and of its arms, and what they tell as they go."""

from __future__ import annotations

from typing import Any, Literal

from workers.protocol.accuracy import Evaluation
from workers.protocol.audit import Shape
from workers.protocol.environments import EnvironmentSpec
from workers.protocol.machines import Portion
from workers.protocol.words import PROTOCOL, Check, Message, Patch, PatchMode, Role, Settings


class BatchPlan(Message):
    """Deterministic requests. Each wave is run to its end before the next starts.

    ``waves`` holds prompt lengths in tokens, all submitted at once; ``staggered`` holds more waves, of which one
    request is submitted per step, so that the prefill of one shares a batch with the decoding of others. Token ids are
    drawn from ``seed``. ``chunked_prefill``: prompts may be longer than a batch and are cut over several steps.
    ``prompt_embeds``: requests carry embeddings in place of token ids. ``prefix_caching``: the engine keeps its prefix
    cache on, and every wave is submitted twice. ``full_bytes``: residuals are kept whole while a recording stays within
    so many bytes per rank, else as a sketch of each token.
    """

    seed: int = 0
    max_tokens: int = 4
    logprobs: int = 5
    waves: list[list[int]] = [[1], [2, 3], [5, 1, 8], [17, 4]]
    staggered: list[list[int]] = []
    chunked_prefill: bool = False
    prompt_embeds: bool = False
    prefix_caching: bool = False
    full_bytes: int = 1 << 30


ROUNDING = "perturbed"
"""The kind of fault that is none: a rounding error in every element, by which the noise floor is measured."""


AGAIN = "again"
"""Name of the trial in which a plan is run once more with nothing changed: it has to give the same."""


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


class Recorded(Message):
    """The ``folder`` of a recording, emitted in an engine's place ``speed`` times as fast: ``workers.recording``."""

    folder: str
    speed: float = 1.0


class ArmSpec(Message):
    """One engine start. ``key`` addresses it by content: equal keys mean equal settings, plan, patches and versions.

    ``known_models``: a cache root from which vLLM's descriptions of model classes are taken over, which spares an arm
    that is not timed a subprocess. They hold nothing compiled. ``toolchain``: a folder of what the C++ compiler needs
    and no model changes (precompiled headers, which vector instructions work), shared by arms that are not timed.
    ``trials`` are run after the batch plan, one by one. An arm with an ``evaluation`` runs that in place of the batch
    plan. ``preload``: its imports need not be its own, see ``workers.zygote``. ``repeat``: which start of its role in
    the run this is, from 1. ``timeout_s``: how long it may take in all; ``phase_timeout_s``: a rank in one phase;
    ``silence_s``: without any event. ``traces``: PyTorch writes its structured trace, and reports are made of it.
    ``null_engine``: no engine is started, a recording of one is emitted. ``portion``: the one that is meant, where
    several machines run the engine; ``None`` where one has all ranks.
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
    phase_timeout_s: float | None = None
    silence_s: float | None = None
    known_models: str | None = None
    toolchain: str | None = None
    trials: list[Trial] = []
    evaluation: Evaluation | None = None
    preload: bool = True
    repeat: int = 1
    traces: bool = False
    null_engine: Recorded | None = None
    portion: Portion | None = None


class Policy(Message):
    """How evidence is judged. Stored with the evidence, so another policy can be applied later without a new run.

    ``noise_factor``: a residual passes where bit equality is not owed while its score is at most this.
    ``perturbations``: how often the replicated arm is run again with a rounding error in its embedding, to measure the
    noise floor. Where it could not be measured it is modelled: ``modelled_factor`` · ``modelled_growth``^layer · eps,
    see ``workers.residual.question.noise_floor``.
    ``accuracy_factor``: a difference in accuracy passes while it is at most so many of its standard errors.
    ``logprob_atol``: log-probabilities closer than this are equal (five digits).
    ``flip_margin``: a token that differs is a flip, not a tie, when the reference prefers its own by more than this; in
    formats with fewer digits than float32, by more than ``reduced_precision_flip_margin``.
    """

    noise_factor: float = 3.0
    accuracy_factor: float = 3.0
    perturbations: int = 4
    modelled_factor: float = 4.0
    modelled_growth: float = 1.02
    logprob_atol: float = 1e-5
    flip_margin: float = 1e-3
    reduced_precision_flip_margin: float = 0.25


class ArtifactsPlace(Message):
    """Where the files of a run are kept: below the fsspec ``url``, by their path below the local folder ``root``."""

    url: str
    root: str


class RunSpec(Message):
    """One attempt at a cell, or at an arm that several cells share.

    ``replicated`` and ``reference`` are folders of shared arms that have already run; ``probe`` is one too, where the
    cell's own probe is such an arm. ``evaluated``: the folder of a shared arm that evaluates with SP off.
    ``artifacts``: ``None`` where files stay on the machine that made them.
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
    evaluated: str | None = None
    environment: EnvironmentSpec | None = None
    artifacts: ArtifactsPlace | None = None


class Event(Message):
    """One thing that happened, in the order it did. ``at`` is Unix time."""

    kind: Literal["arm-started", "phase", "arm-finished", "artifacts-kept", "evidence"]
    at: float
    arm: Role | None = None
    rank: int | None = None
    data: dict[str, Any] = {}
