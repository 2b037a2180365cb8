"""What ``shardproof doctor`` says: versions, the state of each patch and what that means there, guards."""

from __future__ import annotations

from collections.abc import Iterator

from workers.protocol import Diagnosis, Patch, PatchState

NATIVE_SINCE = {Patch.FULL_GRAPH_SP: "0.20", Patch.FALLBACK_FAST_PATH: "0.23"}
"""The first vLLM that brings what the patch does."""

_HELD = {True: "holds", False: "does not hold", None: "cannot be checked here"}


def lines(found: Diagnosis) -> Iterator[str]:
    """One line for each thing that was found."""
    machine = found.environment
    yield f"vLLM {machine.vllm}, torch {machine.torch}, Ray {machine.ray}, Python {machine.python}"
    yield f"device {machine.device}, {machine.devices} GPUs, {machine.cores} cores"
    for patch, state in found.patches.items():
        yield f"patch {patch}: {state}. {_MEANINGS[patch](found, state)}"
    for guard in found.guards:
        yield f"guard {guard.name}: {_HELD[guard.held]} ({guard.detail})"


def _full_graph_sp(found: Diagnosis, state: PatchState) -> str:
    if state is PatchState.TARGET_MISSING:
        return (
            f"{_gone(found, Patch.FULL_GRAPH_SP)}, so the rule can neither be told nor be put on: "
            "no cell with sequence parallelism can be judged here"
        )
    return (
        f"{_whose(found, Patch.FULL_GRAPH_SP, state)}: under sequence parallelism the whole graph is compiled, "
        "whatever splitting_ops asks for, and passes and runner refuse a split one"
    )


def _fallback_fast_path(found: Diagnosis, state: PatchState) -> str:
    if state is PatchState.TARGET_MISSING:
        said = f"{_gone(found, Patch.FALLBACK_FAST_PATH)}, so the fast path can neither be told nor be put on"
    else:
        said = f"{_whose(found, Patch.FALLBACK_FAST_PATH, state)}: vLLM's operations go past Inductor's log line"
    return f"{said}. {_worth(found)}"


_MEANINGS = {Patch.FULL_GRAPH_SP: _full_graph_sp, Patch.FALLBACK_FAST_PATH: _fallback_fast_path}


def _gone(found: Diagnosis, patch: Patch) -> str:
    return f"vLLM {found.environment.vllm} or torch {found.environment.torch} moved it ({found.missing[patch]})"


def _whose(found: Diagnosis, patch: Patch, state: PatchState) -> str:
    vllm, since = found.environment.vllm, NATIVE_SINCE[patch]
    if state is PatchState.NATIVE:
        return f"vLLM {vllm} brings it itself, as all do since {since}, and ours stays off"
    return f"vLLM {vllm} has none of its own, which came with {since}, and ours is put on in every engine"


def _worth(found: Diagnosis) -> str:
    torch = f"torch {found.environment.torch}"
    if found.formats_unread is None:
        return f"Whether {torch} makes the text of that line although nobody reads it is not known"
    if found.formats_unread:
        return f"{torch} makes the text of that line although nobody reads it: without the fast path deep graphs hang"
    log = found.fallback_log
    return f"{torch} makes the text of that line only where it is read: nothing is gained unless {log} logs at INFO"
