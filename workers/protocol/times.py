"""What one start took, rank by rank, and what it used."""

from __future__ import annotations

from workers.protocol.words import Message


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
    ``not_timed``: what this version of PyTorch or vLLM has moved, so that it is not timed, or not kept.
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
    ``time_to_first_token_s``: from the first request to it. ``forked``: see ``ArmReport``.
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
    forked: bool | None = None
    repeats: list[float] = []
    median_s: float | None = None
    min_s: float | None = None
    max_s: float | None = None
