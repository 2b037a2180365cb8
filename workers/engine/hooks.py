"""Where the spans of a process come from: PyTorch's compile events, and calls of vLLM's that nobody else times.

PyTorch's structured trace (``TORCH_TRACE``) holds the same compile events, with every graph beside them. It is written
where a run asks for it; here its events are seen as they are made, which costs a line of text each.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from workers import environment
from workers.engine import internals
from workers.engine.spans import RECORDER, span
from workers.probes.span_phases import OUR_PASS, VLLM_PASS

if TYPE_CHECKING:
    from vllm.compilation.passes.pass_manager import PostGradPassManager

_PURPOSE = "show where the time of a start goes"

_hooked: set[str] = set()
_timed_passes: set[type[Any]] = set()
MISSING: list[str] = []
"""What could not be hooked in this version, in words."""


def watch_compiler() -> None:
    """Make a span of every compile event of this process from now on; write PyTorch's own trace if it was asked for."""
    _once(f"{internals.COMPILE_EVENTS}.{internals.EVENT_BEGINS}", _announcing(RECORDER.begin))
    _once(f"{internals.COMPILE_EVENTS}.{internals.EVENT_ENDS}", _announcing(RECORDER.end))
    folder = os.environ.get(environment.TRACE)
    if folder:
        _guarded(lambda: internals.trace_into(folder))


def keep_headers(folder: str | None) -> None:
    """Keep precompiled headers there. Where PyTorch has moved them a start takes what it takes there, which is told."""
    if folder is not None:
        _guarded(lambda: internals.keep_headers(folder))


def _announcing(tell: Callable[[str], None]) -> Callable[[Callable[..., Any]], Any]:
    def wrap(function: Callable[..., Any]) -> Any:
        @functools.wraps(function)
        def wrapper(self: Any, event_name: str, *args: Any, **kwargs: Any) -> Any:
            tell(event_name)
            return function(self, event_name, *args, **kwargs)

        return wrapper

    return wrap


def watch_main() -> None:
    """In the engine's main process, once vLLM is imported."""
    _watch(internals.MAIN_CALLS)


def watch_rank() -> None:
    """In the process of a rank, once its worker is imported."""
    _watch(internals.RANK_CALLS)


def _watch(calls: Mapping[str, str]) -> None:
    for path, name in calls.items():
        _once(path, lambda function, name=name: _timed(function, name))  # type: ignore[misc]


def _once(path: str, wrap: Callable[[Callable[..., Any]], Any]) -> None:
    if path not in _hooked:
        _hooked.add(path)
        _guarded(lambda: internals.replace(path, _PURPOSE, wrap))


def _guarded(action: Callable[[], None]) -> None:
    try:
        action()
    except internals.TargetMissing as error:
        MISSING.append(str(error))


def _timed(function: Callable[..., Any], name: str) -> Any:
    signature = inspect.signature(function)
    ranged = "compile_range" in signature.parameters

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with span(name, _range(signature.bind(*args, **kwargs).arguments["compile_range"]) if ranged else None):
            return function(*args, **kwargs)

    return wrapper


def _range(compile_range: Any) -> dict[str, str]:
    return {"range": f"{compile_range.start}–{compile_range.end}"}


def time_passes(manager: PostGradPassManager) -> None:
    """A span for every call of each pass of ``manager``, ours and vLLM's, by the name of its class.

    The call is looked up in the class, so it is hooked there. A pass's part of the cache key is its source, and stays.
    """
    beside = [getattr(manager, name, None) for name in internals.PASSES_OF_THE_MANAGER]
    for kind in {type(one) for one in [*manager.passes, *beside] if callable(one)} - _timed_passes:
        _timed_passes.add(kind)
        group = OUR_PASS if kind.__module__.startswith("workers.") else VLLM_PASS
        kind.__call__ = _timed(kind.__call__, f"{group}{kind.__name__}")  # type: ignore[method-assign]
