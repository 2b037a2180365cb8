"""Environment variables of engine processes.

An engine must not see what belongs to somebody else: the variables Ray sets for its workers, and the user's compile
caches, which would make a cold start warm.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from workers.protocol import ROUNDING, ArmSpec

FULL_COMPILE = "SHARDPROOF_FULL_COMPILE"
EVENTS = "SHARDPROOF_EVENTS"
SPANS = "SHARDPROOF_SPANS"
TRACE = "SHARDPROOF_TRACE"
PATCHES = "SHARDPROOF_PATCHES"
TAPS = "SHARDPROOF_TAPS"
CAPACITY = "SHARDPROOF_CAPACITY"
FAULTS = "SHARDPROOF_FAULTS"
COUNTED = "SHARDPROOF_COUNTED"
HEADERS = "SHARDPROOF_HEADERS"
"""Folder of the C++ headers that PyTorch has precompiled."""

LOCAL_RANKS = "SHARDPROOF_LOCAL_RANKS"
"""How many ranks of an engine this machine has, where others have some too."""

RANKS_FORK = "SHARDPROOF_RANKS_FORK"
FOR_RANKS = "SHARDPROOF_FOR_RANKS"
RANKS_METHOD = "VLLM_WORKER_MULTIPROC_METHOD"
"""How vLLM starts its ranks."""

TRACE_FOLDER = "torch_trace"
"""In the arm's folder: PyTorch's structured trace, a log to each process."""

HEADERS_FOLDER = "precompiled_headers"
"""In a cache root, or shared by arms that are not timed: C++ headers, which hang on the compiler and on no model."""

NOT_INHERITED = ("RAY_", "VLLM_", "TORCH", "TRITON_", "SHARDPROOF_", "OMP_NUM_THREADS")
"""Prefixes of variables that change what an engine compiles or where it caches."""

CACHES_OF_THE_GRAPH = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
"""Variable → folder in an arm's cache root. Without them PyTorch writes to the temporary folder, Triton to ``~``."""

CACHES_OF_KERNELS = {
    "TORCH_EXTENSIONS_DIR": "torch",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "DG_JIT_CACHE_DIR": "deep_gemm",
    "TILELANG_CACHE_DIR": "tilelang",
    "TVM_FFI_CACHE_DIR": "tvm_ffi",
    "CUDA_CACHE_PATH": "cuda",
}
"""The same for what compiles single kernels as they are met. Without them all write below ``~``."""

RAY_COPIES = "VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"
RAY_COPIES_PREFIXES = "VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY"
"""Variables by which vLLM is told what else its Ray workers are to be given."""

READ_LATE = frozenset(
    {
        *CACHES_OF_THE_GRAPH,
        *CACHES_OF_KERNELS,
        "FLASHINFER_CUBIN_DIR",
        "CUDA_VISIBLE_DEVICES",
        "VLLM_CACHE_ROOT",
        "VLLM_CPU_OMP_THREADS_BIND",
        "VLLM_ENABLE_V1_MULTIPROCESSING",
        "VLLM_RPC_BASE_PATH",
        "PYTHONWARNINGS",
        "TMPDIR",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
        EVENTS,
        HEADERS,
        SPANS,
        TRACE,
        PATCHES,
        TAPS,
        CAPACITY,
        FAULTS,
        LOCAL_RANKS,
        RANKS_FORK,
        RANKS_METHOD,
        RAY_COPIES,
        RAY_COPIES_PREFIXES,
        "LOCAL_WORLD_SIZE",
        "TORCHINDUCTOR_VEC_ISA_OK",
    }
)
"""Variables that vLLM and PyTorch read when they are needed and not as they are imported, or that mean nothing to them.
An engine forked from a process that had others is what it would be had it imported by itself."""

imported_with: dict[str, str] | None = None
"""In a fork of a zygote: the environment variables that its imports have read, or set."""


def differing(env: Mapping[str, str], before: Mapping[str, str]) -> tuple[str, ...]:
    """Names of variables in which ``env`` differs from ``before``, but for those that no import reads."""
    names = (env.keys() | before.keys()) - READ_LATE
    return tuple(sorted(name for name in names if env.get(name) != before.get(name)))


def ranks_may_fork() -> bool:
    """Whether ranks forked from this process are what ranks that import by themselves would be, and are wanted."""
    wanted = os.environ.get(RANKS_FORK) == "1" and imported_with is not None
    return wanted and not differing(os.environ, imported_with or {})


CALLER = frozenset({"CI", "PYTHONBREAKPOINT", "SPT_NOENV"})
"""Variables that tell who asks, the last two that it is a worker of Ray.

PyTorch makes an error of a warning where ``CI`` is set, so one cell would have two verdicts. A cell that wants the
error asks for it: ``env.TORCHINDUCTOR_ERROR_ON_CUSTOM_OP_ALIASING``.
"""


def clean() -> dict[str, str]:
    """This process's environment without what an engine must not inherit."""
    return {
        name: value for name, value in os.environ.items() if name not in CALLER and not name.startswith(NOT_INHERITED)
    }


def for_question(cache_root: str) -> dict[str, str]:
    """For a process that builds configurations but starts no engine."""
    return clean() | {FULL_COMPILE: "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CACHE_ROOT": cache_root}


def for_arm(spec: ArmSpec, ranks: int, events: str) -> dict[str, str]:
    """For one arm: its own cache root, the scheduler in the engine's process (so that batches are deterministic).

    ``ranks``: those that this machine has.
    """
    return (
        for_question(spec.cache_root)
        | {
            **_compile_caches(spec),
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_CPU_OMP_THREADS_BIND": _cores(ranks),
            EVENTS: events,
            SPANS: spec.folder,
            **_trace(spec),
            # Said of every engine that is killed, after the last line that tells why.
            "PYTHONWARNINGS": "ignore:resource_tracker",
            PATCHES: json.dumps(spec.patches),
            TAPS: "1" if spec.taps else "0",
            FAULTS: "1" if any(trial.fault and trial.fault.kind != ROUNDING for trial in spec.trials) else "0",
            RANKS_FORK: "1" if spec.preload and RANKS_METHOD not in spec.env else "0",
            **_for_ray(spec),
            **({LOCAL_RANKS: str(ranks)} if spec.portion else {}),
        }
        | spec.env
    )


def _for_ray(spec: ArmSpec) -> dict[str, str]:
    """What makes vLLM's Ray workers, which inherit nothing, use the arm's caches and know that they are ours.

    Only where they are: the names enter vLLM's cache key.
    """
    if spec.engine.get("distributed_executor_backend") != "ray":
        return {}
    caches = sorted({*CACHES_OF_THE_GRAPH, *CACHES_OF_KERNELS, "FLASHINFER_CUBIN_DIR"})
    return {RAY_COPIES: ",".join(caches), RAY_COPIES_PREFIXES: "SHARDPROOF_"}


def for_peer(cache_root: str, ranks: int, counted: str) -> dict[str, str]:
    """For vLLM's own startup benchmark: compiles in full as an arm does, without the user's caches or our patches.

    ``counted``: the file that its workers write vLLM's counters to.
    """
    own = {name: os.path.join(cache_root, folder) for name, folder in CACHES_OF_THE_GRAPH.items()}
    kernels = {name: os.path.join(cache_root, "kernels", folder) for name, folder in CACHES_OF_KERNELS.items()}
    said = {"VLLM_CPU_OMP_THREADS_BIND": _cores(ranks), COUNTED: counted, "PYTHONUNBUFFERED": "1"}
    return for_question(cache_root) | own | kernels | {"FLASHINFER_CUBIN_DIR": _downloaded_kernels()} | said


def _trace(spec: ArmSpec) -> dict[str, str]:
    """PyTorch reads a variable of its own as it is imported. Ours is read later: an engine may be forked after that."""
    return {TRACE: os.path.join(spec.folder, TRACE_FOLDER)} if spec.traces else {}


def _compile_caches(spec: ArmSpec) -> dict[str, str]:
    """A place of the arm's own for everything that is compiled, whatever would else lie in the home folder.

    ``XDG_CACHE_HOME`` is left alone: downloaded models lie there too. Kernels that no configuration changes are
    compiled once for all arms that are not timed.
    """
    kernels = spec.toolchain or spec.cache_root
    own = {name: os.path.join(spec.cache_root, folder) for name, folder in CACHES_OF_THE_GRAPH.items()}
    own |= {name: os.path.join(kernels, "kernels", folder) for name, folder in CACHES_OF_KERNELS.items()}
    own[HEADERS] = os.path.join(kernels, HEADERS_FOLDER)
    return own | {"FLASHINFER_CUBIN_DIR": _downloaded_kernels()}


def _downloaded_kernels() -> str:
    """Where FlashInfer keeps what it downloads. It is not compiled here, and may not be there to be had again."""
    base = os.environ.get("FLASHINFER_WORKSPACE_BASE") or os.path.expanduser("~")
    return os.environ.get("FLASHINFER_CUBIN_DIR") or os.path.join(base, ".cache", "flashinfer", "cubins")


def _cores(ranks: int) -> str:
    """One group of cores per rank, as vLLM writes it; more ranks than cores share them in turn."""
    cores = sorted(os.sched_getaffinity(0))
    groups = [cores[rank % len(cores) :: ranks] or [cores[rank % len(cores)]] for rank in range(ranks)]
    return "|".join(",".join(map(str, group)) for group in groups)
