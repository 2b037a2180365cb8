"""The one place that touches private names of vLLM and PyTorch.

Each access is guarded: when what it relies on is gone, ``TargetMissing`` says what that was, and the caller reports
it instead of guessing.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
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
MAKE_FALLBACK = "make_fallback"
CALL_FUNCTION = f"{GRAPH}:GraphLowering.call_function"
"""What lowers a call of an operation, and with ``make_fallback`` registers a fallback for one without a lowering."""

OPERATOR_ISSUES = (f"{GRAPH}:MissingOperatorWithDecomp", f"{GRAPH}:MissingOperatorWithoutDecomp")
OPERATOR_STR = "operator_str"
"""What describes an operation and its inputs in the log line of the slow path; each of the two classes has it."""


def allow_fallback(name: str) -> None:
    """Let Inductor fall back to eager for ``name`` without formatting its inputs for a log line first."""
    resolve(f"{LOWERING}:{ALLOW_LIST}", "let our own operation fall back quickly").add(name)


SITES = {
    "torch:ops.vllm_ir.rms_norm.default": "find the first residual in the graph",
    "torch:ops.vllm_ir.fused_add_rms_norm.default": "find the residual behind every attention and MLP in the graph",
    "vllm.compilation.passes.inductor_pass:InductorPass": "put a pass of our own into the engine's",
    "vllm.compilation.passes.inductor_pass:get_pass_context": "tell the compile ranges apart",
    "vllm.compilation.passes.pass_manager:PostGradPassManager.configure": "run that pass after the engine's rewrites",
    "vllm.compilation.passes.pass_manager:PostGradPassManager.add": "run that pass after the engine's rewrites",
}
"""What recording the residual of a compiled engine hangs on, and what for."""


def missing_sites() -> list[TargetMissing]:
    """What of ``SITES`` is not there in this version; empty where the residual can be recorded."""
    missing = []
    for path, purpose in SITES.items():
        try:
            resolve(path, purpose)
        except TargetMissing as error:
            missing.append(error)
    return missing


def forget_logged_once() -> None:
    """Make vLLM's ``warning_once`` speak again: it remembers what it said for the life of the process."""
    for name in ("_print_debug_once", "_print_info_once", "_print_warning_once"):
        resolve(f"vllm.logger:{name}.cache_clear", "see the engine's reasons for each cell, not for the first alone")()


def partitions() -> int | None:
    """Pieces into which Inductor itself has cut the graphs it compiled in this process, those it leaves alone included.

    0 where it cut none; ``None`` where this PyTorch does not count them.
    """
    try:
        counters = resolve("torch._dynamo.utils:counters", "count the pieces that Inductor cuts a graph into")
    except TargetMissing:
        return None
    # torch/_inductor/scheduler.py counts there what it cuts, whether or not a CUDA graph is made of it.
    return int(counters["inductor"]["cudagraph_partitions"])


CODECACHE = "torch._inductor.codecache"


def keep_headers(folder: str) -> None:
    """Have PyTorch keep its precompiled C++ headers in ``folder``, and not below the temporary one.

    They are no part of its cache, and each arm has a temporary folder of its own: a warm start would make them anew.
    """
    purpose = "keep precompiled headers from one start to the next"
    places = {"_HEADER_DIR": folder, "_HEADER_LOCK_DIR": os.path.join(folder, "locks")}
    for name in places:
        resolve(f"{CODECACHE}:{name}", purpose)
    for name, place in places.items():
        setattr(importlib.import_module(CODECACHE), name, place)


def take_vectors_for_granted() -> None:
    """Use all vector instructions that the processor claims, untried, also where PyTorch has read its settings."""
    resolve(
        "torch._inductor.config:cpp", "spare an arm that is not timed a trial of vector instructions"
    ).vec_isa_ok = True


def all_vectors_work() -> bool:
    """Whether every kind of vector instructions that the processor claims was tried here and found to work.

    ``False`` also where nothing was tried: it was taken for granted, or this is no x86 machine.
    """
    module = "torch._inductor.cpu_vec_isa"
    purpose = "tell which vector instructions were tried"
    config = resolve("torch._inductor.config:cpp", purpose)
    claimed_flags = resolve(f"{module}:x86_isa_checker", purpose)()
    if config.vec_isa_ok is not None or not claimed_flags:
        return False
    known = resolve(f"{module}:supported_vec_isa_list", purpose)
    claimed = [isa for isa in known if all(flag in claimed_flags for flag in str(isa).split())]
    return len(resolve(f"{module}:valid_vec_isa_list", purpose)()) == len(claimed)


IMPORTED_TO_COMPILE = ("torch._inductor.compile_fx",)
"""What PyTorch imports when it first compiles."""


def place_headers_anew() -> None:
    """Keep precompiled headers below the temporary folder of now, as a process that imported now would."""
    purpose = "keep headers compiled by one engine from another that is to start cold"
    root = resolve("torch._inductor.runtime.cache_dir_utils:default_cache_dir", purpose)()
    keep_headers(os.path.join(root, "precompiled_headers"))


COMPILED = {
    "kernels in Python": f"{CODECACHE}:PyCodeCache.modules",
    "kernels in C++": f"{CODECACHE}:CppCodeCache.cache",
    "wrappers in C++": f"{CODECACHE}:CppPythonBindingsCodeCache.cache",
    "counters of PyTorch": "torch._dynamo.utils:counters",
    "compile times": "torch._dynamo.utils:compilation_time_metrics",
}
"""Where a process keeps what it compiled, and that it did."""
REMEMBERED = {
    "precompiled headers": f"{CODECACHE}:_precompile_header.cache_info",
    "vector instructions that work": "torch._inductor.cpu_vec_isa:valid_vec_isa_list.cache_info",
}
"""Functions that remember what they compiled."""


def compiled_here() -> list[str]:
    """What this process holds of any compilation; nothing in one that has only imported.

    Raises:
        TargetMissing: when it cannot be told.
    """
    from vllm.compilation.counter import compilation_counter

    purpose = "tell that an engine starts with nothing compiled"
    found = [name for name, path in COMPILED.items() if len(resolve(path, purpose))]
    found += [name for name, path in REMEMBERED.items() if resolve(path, purpose)().currsize]
    return found + [f"counter {name} of vLLM" for name, count in vars(compilation_counter).items() if count]


COMPILE_EVENTS = "torch._dynamo.utils:ChromiumEventLogger"
"""Where each of PyTorch's compile phases says that it begins and ends (``dynamo_timed``); its times are wall times."""

EVENT_BEGINS, EVENT_ENDS = "log_event_start", "log_event_end"

MAIN_CALLS = {
    "vllm.v1.engine.llm_engine:LLMEngine.__init__": "engine",
    "vllm.v1.engine.core:EngineCore.__init__": "engine_core",
    "vllm.v1.engine.core:EngineCore._initialize_kv_caches": "kv_setup",
    "vllm.v1.executor.abstract:Executor.__init__": "executor",
}
"""What the main process does while it starts the engine → the name of its span."""

RANK_CALLS = {
    "vllm.distributed.device_communicators.shm_broadcast:MessageQueue.dequeue": "wait",
    "vllm.model_executor.model_loader.default_loader:DefaultModelLoader.load_weights": "load_weights",
    "vllm.v1.worker.gpu_model_runner:GPUModelRunner.profile_run": "profile_run",
    "vllm.v1.worker.gpu_model_runner:GPUModelRunner.capture_model": "graph_capture",
    "vllm.compilation.wrapper:TorchCompileWithNoGuardsWrapper.aot_compile": "aot_compile",
    "vllm.compilation.backends:VllmBackend.__call__": "vllm_backend",
    "vllm.compilation.backends:CompilerManager.compile": "compile_range",
    "vllm.compilation.backends:CompilerManager.load": "cache_load",
    "vllm.compilation.backends:CompilerManager.save_to_file": "cache_save",
    "vllm.compilation.decorators:_try_load_aot_compiled_fn": "cache_load",
    "torch._dynamo.aot_compile:AOTCompiledFunction.save_compiled_function": "cache_save",
}
"""What a rank does that PyTorch does not time, or not as vLLM's → the name of its span, see ``span_phases``."""

PASSES_OF_THE_MANAGER = ("ir_lowering", "clone_elimination", "post_cleanup", "fix_functionalization")
"""Passes that vLLM's pass manager runs beside its list."""


def replace(path: str, purpose: str, wrap: Callable[[Callable[..., Any]], Any]) -> None:
    """Put ``wrap`` of the function or method at ``path`` in its place, for every later call by that name.

    Raises:
        TargetMissing: if the module or one of the attributes is gone.
    """
    found = resolve(path, purpose)
    owner_path, _, name = path.rpartition("." if "." in path.partition(":")[2] else ":")
    owner = resolve(owner_path, purpose) if ":" in owner_path else importlib.import_module(owner_path)
    setattr(owner, name, wrap(found))


def trace_into(folder: str) -> None:
    """Have PyTorch write its structured trace into ``folder``, also where it was imported before that was asked for."""
    purpose = "write PyTorch's structured trace"
    handler = resolve("torch._logging._internal:LOG_TRACE_HANDLER", purpose)
    if handler is None:
        raise TargetMissing("torch._logging._internal:LOG_TRACE_HANDLER", purpose)
    handler.root_dir = folder
    # One without a folder has taken itself off at the first record.
    resolve("torch._logging._internal:trace_log", purpose).addHandler(handler)
