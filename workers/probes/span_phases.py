"""Which phase of a rank's time line a span belongs to, by its name.

The names are those of PyTorch's compile events (``dynamo_timed``) and of ``workers.engine.internals``. A name that is
not known here is part of what it runs in, so what a new version of PyTorch adds changes no sum.
"""

from __future__ import annotations

WAIT = "wait"
"""A rank that has nothing to do until the main process sends it work."""

CACHE_LOAD = "cache_load"

VLLM_PASS, OUR_PASS = "pass.vllm.", "pass.shardproof."
"""What a span of a pass is called, before the name of the pass. Inductor's own are ``pass.<group>.<name>``."""

_EXACT = {
    # Where the rank is the main process itself; of another process these are no part of a rank's line.
    "engine": "engine",
    "engine_core": "engine",
    "executor": "engine",
    "kv_setup": "engine",
    "wait": WAIT,
    "load_weights": "weights",
    "aot_compile": "dynamo",
    "fullgraph_capture": "dynamo",
    "dynamo": "dynamo",
    "entire_frame_compile": "dynamo",
    "bytecode_tracing": "dynamo",
    "build_guards": "dynamo",
    "gc": "dynamo",
    "vllm_backend": "vllm_backend",
    "compile_range": "vllm_backend",
    "backend_compile": "aot_autograd",
    "create_aot_dispatcher_function": "aot_autograd",
    "aot_collect_metadata": "aot_autograd",
    "aot_trace_joint_graph": "aot_autograd",
    "_recursive_pre_grad_passes": "inductor_passes",
    "_recursive_joint_graph_passes": "inductor_passes",
    "_recursive_post_grad_passes": "inductor_passes",
    "pass.post_grad_passes.post_grad_custom_post_pass": "vllm_passes",
    "fx_codegen_and_compile": "inductor_lowering",
    "additional_fake_tensor_prop": "inductor_lowering",
    "GraphLowering.run": "inductor_lowering",
    "GraphLowering.compile_to_fn": "inductor_codegen",
    "GraphLowering.codegen": "inductor_codegen",
    "Scheduler.codegen": "inductor_codegen",
    "PythonWrapperCodegen.generate": "inductor_codegen",
    "Scheduler.__init__": "inductor_scheduling",
    "Scheduler.fused_nodes": "inductor_scheduling",
    "compile_file": "inductor_compile",
    "async_compile.wait": "inductor_compile",
    "async_compile.precompile": "inductor_compile",
    # Around a compilation, and around finding that there is nothing to compile: what it does itself is the look-up.
    "inductor_compile": "cache_key",
    "CacheBase.get_system.triton_key": "cache_key",
    "inductor_codecache_torch_key": "cache_key",
    "CompiledArtifact.save": "cache_save",
    "TritonBundler.collect": "cache_save",
    "cache_save": "cache_save",
    "CompiledArtifact.load": CACHE_LOAD,
    "AOTAutogradCache.inductor_load": CACHE_LOAD,
    "GraphPickler.loads": CACHE_LOAD,
    "cache_load": CACHE_LOAD,
    "profile_run": "profile",
    "graph_capture": "graph_capture",
}

_BEGINNINGS = {
    VLLM_PASS: "vllm_passes",
    OUR_PASS: "shardproof_passes",
    "pass.": "inductor_passes",
    "compile_attempt_": "dynamo",
    "bytecode_hooks_": "dynamo",
    "compile_fx.": "aot_autograd",
    "CachingAutotuner.": "inductor_compile",
}

_COMPILED_MODULE = "PyCodeCache.load_by_key_path"
"""Compiles what the generated module names and is not there; of an artifact that is loaded it is part of that."""

PHASES = tuple(dict.fromkeys([*_EXACT.values(), *_BEGINNINGS.values()]))

NOT_COMPILING = (WAIT, "engine", "weights", "cache_key", CACHE_LOAD, "cache_save", "profile", "graph_capture")

COMPILE_PHASES = tuple(phase for phase in PHASES if phase not in NOT_COMPILING)
"""Phases in which something is compiled."""


def phase_of(name: str, around: str | None) -> str | None:
    """The phase of a span called ``name``; ``around`` is that of the span it runs in, ``None`` where there is none."""
    if name == _COMPILED_MODULE:
        return around if around == CACHE_LOAD else "inductor_compile"
    if name in _EXACT:
        return _EXACT[name]
    return next((phase for beginning, phase in _BEGINNINGS.items() if name.startswith(beginning)), around)
