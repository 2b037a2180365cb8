"""What an engine imports whatever its configuration, and what an import remembers that an engine must not.

Runs in the zygote. It must neither compile nor start threads that a fork would lose, nor touch a GPU.
"""

from __future__ import annotations

import gc
import importlib
import tempfile

from workers.engine import internals

MODULES = (
    "vllm.v1.engine.llm_engine",
    "vllm.v1.executor.multiproc_executor",
    "vllm.v1.executor.uniproc_executor",
    "vllm.compilation.backends",
    "vllm.model_executor.models.llama",
    "vllm.model_executor.models.qwen3",
    *internals.IMPORTED_TO_COMPILE,
    "workers.engine.arm",
    "workers.engine.settings",
    "workers.engine.extension",
    "workers.probes.audit",
)
"""Imported first. One that this version does not have is imported where it is needed, or not at all."""

CPU_MODULES = ("workers.engine.worker_cpu", "workers.platforms.pass_manager")


def load() -> None:
    """Import, and put what is there out of the garbage collector's sight, so that forks go on sharing its memory."""
    _import(MODULES)
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        _import(CPU_MODULES)
    from vllm.config import VllmConfig

    # Imports what is imported for configurations alone, and sets what those imports set.
    VllmConfig()
    gc.collect()
    gc.freeze()


def _import(names: tuple[str, ...]) -> None:
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise


def forget() -> None:
    """In a fork that has its own temporary folder: nothing may lie in the zygote's any more.

    Raises:
        TargetMissing: when it cannot be told where PyTorch keeps its headers.
    """
    tempfile.tempdir = None
    internals.place_headers_anew()
