"""What a run found out. What was not looked at is ``None``, never zero."""

from __future__ import annotations

from enum import StrEnum

from workers.protocol.accuracy import Accuracy
from workers.protocol.audit import Environment, Guard
from workers.protocol.runs import Policy
from workers.protocol.words import PROTOCOL, Message, Outcome, Patch, PatchState, Role


class Phase(Message):
    """``s`` may be in several pieces; ``begin``: where the first is, in seconds since the arm was started."""

    name: str
    s: float
    begin: float | None = None


class Part(Message):
    """All that is called ``name`` on one rank, and took ``s`` seconds with whatever ran inside."""

    name: str
    s: float
    calls: int


class RankTimes(Message):
    """``total_s`` is the outer wall time of the arm: the phases and ``unaccounted_s`` add up to it on every rank.

    ``passes``: vLLM's (``pass.vllm.…``) and ours (``pass.shardproof.…``). ``ranges``: the compile ranges, first to last
    number of tokens. Both are ``None`` where the rank left no spans.
    """

    rank: int
    total_s: float
    phases: list[Phase]
    unaccounted_s: float
    passes: list[Part] | None = None
    ranges: list[Part] | None = None


class Span(Message):
    """A stretch of one thread's time; ``begin`` and ``end`` in seconds since the arm was started, monotonic clock.

    ``end`` is ``None`` where the process was killed inside. ``depth``: how many spans of its thread are around it.
    ``thread``: 0 is the process's first. ``phase``: of the rank's line that it belongs to.
    """

    name: str
    begin: float
    end: float | None
    depth: int
    thread: int = 0
    phase: str | None = None


class ProcessTimes(Message):
    """What one process was at. ``rank`` is ``None`` for the engine's main process.

    ``started``: when it was started, in seconds since the arm was, where that is known. ``phases``: those that it told
    as it went, outside of all spans. ``left_out``: so many of its
    spans are too short to stand here; all are in the arm's folder. ``problems``: what is wrong with its record.
    ``not_timed``: what this version of PyTorch or vLLM has moved, so that it could not be timed.
    """

    pid: int
    rank: int | None
    started: float | None
    spans: list[Span]
    phases: list[Span] = []
    left_out: int = 0
    problems: list[str] = []
    not_timed: list[str] = []


class RankResources(Message):
    """What a rank used.

    ``peak_rss_bytes``: of main memory, ``device_peak_bytes``: of the accelerator's (``None`` where there is none).
    ``artifact_bytes``: what lies in the cache root for this rank alone. ``pieces``: subgraphs that vLLM cut the model
    into and may compile; ``subgraphs``: those it handed to the compiler, over all compile ranges;
    ``unique_subgraphs``: how many of these were different. All three are ``None`` in a start that loaded the whole.
    """

    rank: int
    peak_rss_bytes: int | None = None
    device_peak_bytes: int | None = None
    artifact_bytes: int | None = None
    pieces: int | None = None
    subgraphs: int | None = None
    unique_subgraphs: int | None = None


class RankArtifacts(Message):
    """vLLM's own compilation counters on one rank.

    ``held_before``: what its process held of any compilation before the engine began; nothing, or a start is not what
    it is called. ``None`` in evidence that was stored when nobody looked.
    """

    rank: int
    saved: int
    loaded: int
    compiled: int
    held_before: list[str] | None = None


class Artifacts(Message):
    """Sums over the ranks, and each rank's counters as proof."""

    saved: int
    loaded: int
    ranks: list[RankArtifacts]


class CompileTimes(Message):
    """One start. Where it stands for several, it is the one whose total is the median (the lower of two in the middle).

    ``repeats``: the totals of all, in order; ``median_s``, ``min_s`` and ``max_s``: of them. Empty where a start stands
    for itself alone.

    ``processes``: what each was at, as spans. ``artifact_bytes``: what lies in the cache root afterwards.
    ``kv_blocks``: of the KV cache. ``first_token_s``: from the start of the arm to the first token,
    ``time_to_first_token_s``: from the first request to it.
    """

    total_s: float
    ranks: list[RankTimes]
    artifacts: Artifacts
    processes: list[ProcessTimes] = []
    resources: list[RankResources] = []
    artifact_bytes: int | None = None
    kv_blocks: int | None = None
    first_token_s: float | None = None
    time_to_first_token_s: float | None = None
    repeats: list[float] = []
    median_s: float | None = None
    min_s: float | None = None
    max_s: float | None = None


class SequenceParallelism(Message):
    """``expected``: all-reduces before the pass, each of which it should rewrite. ``matched``: those it did.

    Both are those of the rank that falls shortest of what it should have; ``per_rank`` shows what each rank matched and
    ``expected_per_rank`` what it should have: pipeline stages have different numbers. Where that is empty, ``expected``
    holds for all.
    """

    expected: int | None
    matched: int | None
    per_rank: list[int]
    expected_per_rank: list[int] = []


class Exercised(Message):
    sequence_parallelism: SequenceParallelism | None


class FallbackOp(Message):
    """One operation that took the slow path. ``characters`` is 0 where the text for the log line was never made."""

    op: str
    calls: int
    slow_path_s: float
    characters: int


class RankFallback(Message):
    """The fallbacks that Inductor made on one rank: by way of its log line (``calls``) and past it (``fast_calls``).

    ``slow_path_s``: seconds that formatting took, of text of so many ``characters``. ``eager``: this torch makes the
    text although nobody reads the log. All are ``None`` where nobody could look, and ``reason`` says why. A rank that
    loads what was compiled before makes no fallbacks: its counts are 0, ``fast_calls`` too.
    """

    rank: int
    calls: int | None = None
    fast_calls: int | None = None
    slow_path_s: float | None = None
    characters: int | None = None
    eager: bool | None = None
    ops: list[FallbackOp] = []
    reason: str | None = None


class ArmFallback(Message):
    arm: Role
    ranks: list[RankFallback]


class Fallback(Message):
    """Sums over the ranks of ``arm``, which is the cold one where there is one; ``arms`` has all, rank by rank.

    A sum of which a part is not known is ``None``, and ``reason`` says why. ``state``: of the patch.
    """

    calls: int | None
    slow_path_s: float | None
    state: PatchState | None
    fast_calls: int | None = None
    characters: int | None = None
    eager: bool | None = None
    arm: Role | None = None
    reason: str | None = None
    arms: list[ArmFallback] = []


class Onset(StrEnum):
    """How an error comes up from one site to the next."""

    JUMP = "jump"
    DRIFT = "drift"


class Divergence(Message):
    """The first place where the residual is wrong, in the order step, site, rank.

    ``tokens`` counts the wrong rows of that step on that rank, ``rows`` holds the first of their numbers within the
    step. ``score`` is the relative error in units of the noise floor; it is ``None`` where the numbers cannot be
    compared (NaN, wrong size). ``onset``: whether the score jumps here or has grown over the sites before.
    ``confusion[i][j]``: relative error of rank i's part against the part that belongs to rank j, ``None`` where their
    sizes differ or a number is not finite; empty where the residual is not scattered. ``sentence`` says all of it in
    plain words.
    """

    site: str
    rank: int
    step: int
    pattern: str
    tokens: int
    score: float | None
    rows: list[int] = []
    onset: Onset | None = None
    confusion: list[list[float | None]] = []
    sentence: str = ""


class Floor(StrEnum):
    """What a residual is held to: bit equality, a noise floor that was measured, or one that is modelled."""

    BITWISE = "bitwise"
    MEASURED = "measured"
    MODELLED = "modelled"


class SiteScore(Message):
    """Scores of the tokens of one site on one rank over all steps.

    A token's score is the relative error of its residual, ‖x - y‖ / ‖y‖, divided by ``floor``.
    """

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

    ``scattered_rows`` and ``replicated_rows`` count the tokens over steps and sites, by whether each rank held a part
    there or all of them. ``sketched``: of each token a sketch was compared, ``elements`` counts its numbers.
    ``records``: each place that scores higher than every place before it. Whatever the noise factor, the first place
    above it is one of them, so that another factor can be applied later. ``wrong_steps`` counts the steps with a place
    that is not equal (or, where bit equality is not owed, scores above the noise factor). ``seeds``: of the perturbed
    runs in which the floor was measured.
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
    scattered_rows: int | None = None
    replicated_rows: int | None = None
    sketched: bool = False
    records: list[Divergence] = []
    wrong_steps: int = 0
    seeds: list[int] = []


class Invariant(Message):
    """What has to hold without any tolerance, in the residual or the graphs of ``arm``.

    ``held`` is ``None`` where nothing could be checked; ``detail`` says why, or what was seen. ``checked`` counts the
    single comparisons.
    """

    name: str
    held: bool | None
    checked: int
    detail: str
    arm: Role = Role.PROBE


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


class KeyFactor(Message):
    """A factor of vLLM's cache key that differs, by its dotted path. Values are JSON, long ones cut."""

    name: str
    cold: str
    warm: str


class KeyDifference(Message):
    """What of one rank's cache key is another in a warm start. ``part``: of a model compiled in several.

    ``changed`` is empty where no factor differs; ``problem`` says why they could not be compared.
    """

    rank: int
    part: str = ""
    changed: list[KeyFactor] = []
    problem: str | None = None


class TimedStart(Message):
    """One cold or warm start. ``repeat`` counts from 1.

    ``outputs``: a warm start's answers against those of the cold start that filled its cache root. ``cache_keys``: of
    each rank that loaded less than the cold start had saved. ``cache_problem``: why nothing more could be written to
    the cache root afterwards.
    """

    role: Role
    repeat: int
    times: CompileTimes
    outputs: OutputComparison | None = None
    cache_keys: list[KeyDifference] = []
    cache_problem: str | None = None


class Compile(Message):
    """``cold`` and ``warm`` are the median starts; ``starts`` holds every one, in order."""

    cold: CompileTimes | None
    warm: CompileTimes | None
    starts: list[TimedStart] = []


class StuckProcess(Message):
    """A process of an arm whose time was up.

    ``s``: how long it had been in its phase. ``doing``: the likely cause in words, or why it has no stack. A process
    that is neither rank nor ``main`` is a helper of one of them.
    """

    pid: int
    rank: int | None
    main: bool
    phase: str | None
    s: float | None
    doing: str


class Failure(Message):
    """How an arm died: which rank in which phase, what it said, and the last lines of its own log.

    Of an arm whose time was up also: ``since_s``, how many seconds the rank had been in that phase; ``cause``, the
    likely one in words; ``stacks``, the file with the stacks of all its processes; ``processes``, what each was at.
    """

    phase: str | None
    rank: int | None
    message: str
    log_tail: list[str]
    since_s: float | None = None
    cause: str | None = None
    stacks: str | None = None
    processes: list[StuckProcess] = []


class Traces(Message):
    """What a run that asks for traces keeps of an arm, as paths within the arm's folder.

    ``logs``: PyTorch's structured trace, one log to each process that compiled. ``perfetto``: a trace of all processes
    in Chrome's format, ``tlparse``: its report over all ranks; ``None`` where there is none, and ``notes`` says why.
    """

    logs: list[str]
    perfetto: str | None
    tlparse: str | None
    notes: list[str] = []


class ArmReport(Message):
    """``repeat``: which start of its role in the run this was, from 1. ``traces``: where the run asked for them.

    ``clock_set_by_s``: by how many seconds the wall clock was set while the arm ran, ``None`` when it was not.
    """

    role: Role
    key: str
    outcome: Outcome
    wall_s: float
    folder: str
    failure: Failure | None
    peak_rss_bytes: int | None = None
    repeat: int = 1
    traces: Traces | None = None
    clock_set_by_s: float | None = None


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
    invariants: list[Invariant] = []
    accuracy: Accuracy | None = None
