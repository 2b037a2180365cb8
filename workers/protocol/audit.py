"""Questions that need no engine: which settings there are, and what a cell resolves to."""

from __future__ import annotations

from typing import Any

from workers.protocol.accuracy import Evaluation
from workers.protocol.words import PROTOCOL, Message, Patch, PatchMode, PatchState, Settings


class KeyInfo(Message):
    """One setting. ``type`` is the annotation as vLLM writes it; ``nested`` when dotted keys reach into it."""

    type: str
    nested: bool = False


class Environment(Message):
    """Where evidence was taken. ``device`` is ``cpu`` or the accelerator's name; ``devices`` counts accelerators.

    ``address``: of an engine environment that was built for it, what it is made of; ``None`` in the default one.
    ``driver``: the accelerators' own, where there are any and it says which it is.
    """

    vllm: str
    torch: str
    ray: str | None
    python: str
    device: str
    devices: int
    cores: int
    address: str | None = None
    driver: str | None = None


class Catalogue(Message):
    """Answer of ``python -m workers.engine describe``.

    ``for_ranks``: environment variables that vLLM sets for its ranks, whatever the configuration.
    """

    protocol: int = PROTOCOL
    environment: Environment
    keys: dict[str, KeyInfo]
    for_ranks: dict[str, str] = {}


# --- audit: requested → effective, without an engine -----------------------------------------------------------------


class AuditCell(Message):
    """``taps``: the residual is to be recorded."""

    id: str
    engine: Settings
    patches: dict[Patch, PatchMode]
    taps: bool = False
    evaluation: Evaluation | None = None


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
    """What the rest of the run needs to know of a resolved configuration.

    ``sp_min_token_num``: from so many tokens on SP rewrites; ``None`` where SP is off. ``compile_ranges``: first and
    last number of tokens of each range that is compiled by itself. ``kv_tokens``: how many tokens the KV cache holds
    on the rank that holds the fewest, or on the TP=1 reference; ``None`` where only a running engine can tell.
    ``block_size``: tokens in a block of that cache. ``async_scheduling``: a step is put together before the last one
    has ended.
    """

    tensor_parallel_size: int
    pipeline_parallel_size: int
    layers: int
    hidden_size: int
    dtype: str
    sequence_parallelism: bool
    full_graph: bool
    compiled: bool
    sp_min_token_num: int | None = None
    compile_ranges: list[tuple[int, int]] = []
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    chunked_prefill: bool = False
    kv_tokens: int | None = None
    block_size: int | None = None
    async_scheduling: bool | None = None


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
    """What ``python -m workers.engine diagnose`` finds: the patches as this version has them, and the guards.

    ``missing``: for a patch whose target is, what is gone, in words. ``formats_unread``: Inductor makes the text of the
    log line behind a fallback although nobody reads it; ``None`` when that could not be found out. ``fallback_log``:
    the name of that log.
    """

    protocol: int = PROTOCOL
    environment: Environment
    patches: dict[Patch, PatchState]
    guards: list[Guard]
    missing: dict[Patch, str] = {}
    formats_unread: bool | None = None
    fallback_log: str | None = None
