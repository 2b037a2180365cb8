"""Patch ``fallback_fast_path``: Inductor falls back for vLLM's custom operations without formatting their inputs.

A custom operation without a lowering that is not in Inductor's ``FALLBACK_ALLOW_LIST`` takes a path that formats every
input for a log line. On deep graphs that text grows exponentially and compilation seems to hang. The list is put
behind a proxy that says yes to vLLM's namespaces. ``lowering`` owns it and ``graph`` holds a binding of its own.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from typing import Any

from workers.engine.internals import ALLOW_LIST, GRAPH, LOWERING, TargetMissing, resolve
from workers.protocol import PatchMode, PatchState

logger = logging.getLogger("vllm.shardproof.fallback_fast_path")

PREFIXES = ("vllm::", "vllm_aiter::")
WITNESS = "vllm::an_operation_that_nobody_registered"


class FallbackAllowList:
    """Inductor's allow list, which also contains every operation of vLLM's namespaces. All else is delegated."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __contains__(self, name: object) -> bool:
        return (isinstance(name, str) and name.startswith(PREFIXES)) or name in self._inner

    def __iter__(self) -> Iterator[Any]:
        return iter(self._inner)

    def __len__(self) -> int:
        return len(self._inner)

    def __getattr__(self, name: str) -> Any:
        # Copying asks for attributes before __init__ has run.
        if name == "_inner":
            raise AttributeError(name)
        return getattr(self._inner, name)


def establish(mode: PatchMode) -> PatchState:
    """Make sure the fast path is there, take it away, or leave it as found, in both bindings."""
    try:
        found = _as_found()
        if mode is PatchMode.NATIVE:
            return _state(found)
        if mode is PatchMode.OFF:
            _bind(unwrapped(found))
            return PatchState.REMOVED
        if WITNESS not in found:
            found = FallbackAllowList(found)
        # vLLM replaces the list that ``lowering`` owns; a module that imported it before keeps the old one.
        _bind(found)
        return _state(found)
    except TargetMissing as missing:
        logger.warning("patch-target-missing: %s", missing)
        return PatchState.TARGET_MISSING


def missing() -> str | None:
    """Which of the two bindings is gone, in words; ``None`` when both are there."""
    try:
        _as_found()
    except TargetMissing as missing:
        return missing.name
    return None


def unwrapped(allow_list: Any) -> Any:
    """Inductor's own list under any number of proxies, ours or vLLM's.

    Raises:
        TargetMissing: when a proxy that is not ours does not show what is inside it.
    """
    while WITNESS in allow_list:
        inner = getattr(allow_list, "_inner", None)
        if inner is None:
            raise TargetMissing(f"{type(allow_list).__name__}._inner", "take the native fast path away")
        allow_list = inner
    return allow_list


_found: list[Any] = []


def _as_found() -> Any:
    """The allow list as this process had it before the first request, bound again in both places."""
    if not _found:
        _found.append(resolve(f"{LOWERING}:{ALLOW_LIST}", "route vLLM's operations past the log line"))
    _bind(_found[0])
    return _found[0]


def _state(allow_list: Any) -> PatchState:
    if WITNESS not in allow_list:
        return PatchState.ABSENT
    return PatchState.APPLIED if isinstance(allow_list, FallbackAllowList) else PatchState.NATIVE


def _bind(allow_list: Any) -> None:
    for name in (LOWERING, GRAPH):
        resolve(f"{name}:{ALLOW_LIST}", "route vLLM's operations past the log line")
        setattr(importlib.import_module(name), ALLOW_LIST, allow_list)
