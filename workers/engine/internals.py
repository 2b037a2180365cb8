"""The one place that touches private names of vLLM and PyTorch.

Each access is guarded: when what it relies on is gone, ``TargetMissing`` says what that was, and the caller reports
it instead of guessing.
"""

from __future__ import annotations

import importlib
from typing import Any


class TargetMissing(RuntimeError):
    """A private name this project relies on is not there in the installed version."""

    def __init__(self, name: str, purpose: str) -> None:
        super().__init__(f"{name} is not there (needed to {purpose}); this version of the package moved it")
        self.name = name
        self.purpose = purpose


def resolve(path: str, purpose: str) -> Any:
    """The object at ``module:attribute.attribute``.

    Raises:
        TargetMissing: if the module or one of the attributes is gone.
    """
    module_name, _, attributes = path.partition(":")
    try:
        found = importlib.import_module(module_name)
        for attribute in attributes.split("."):
            found = getattr(found, attribute)
    except (ImportError, AttributeError) as error:
        raise TargetMissing(path, purpose) from error
    return found


LOWERING = "torch._inductor.lowering"
GRAPH = "torch._inductor.graph"
ALLOW_LIST = "FALLBACK_ALLOW_LIST"


def allow_fallback(name: str) -> None:
    """Let Inductor fall back to eager for ``name`` without formatting its inputs for a log line first."""
    resolve(f"{LOWERING}:{ALLOW_LIST}", "let our own operation fall back quickly").add(name)


def forget_logged_once() -> None:
    """Make vLLM's ``warning_once`` speak again: it remembers what it said for the life of the process."""
    for name in ("_print_debug_once", "_print_info_once", "_print_warning_once"):
        resolve(f"vllm.logger:{name}.cache_clear", "see the engine's reasons for each cell, not for the first alone")()


def compile_seconds() -> dict[str, float]:
    """Seconds by PyTorch's own compile timers (``dynamo_timed``), summed over their calls in this process."""
    metrics = resolve("torch._dynamo.utils:compilation_time_metrics", "split the compile time into phases")
    return {name: float(sum(times)) for name, times in metrics.items()}
