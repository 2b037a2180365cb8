"""Patch ``full_graph_sp``: sequence parallelism only under full-graph compilation.

SP scatters the residual by tokens over the tensor-parallel ranks. Under piecewise compilation that residual crosses
subgraph boundaries, where its size no longer agrees between the ranks. Four places see to it: the config rule rewrites
``splitting_ops`` (and a CUDA graph mode with a piecewise part), the SP pass and the async TP pass assert a full graph,
and so does the runner's helper.

Each place is wrapped rather than replaced: taking the rule away means calling the original with SP hidden from it,
taking an assertion away means calling the original with a configuration it does not object to.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

from workers.engine.internals import TargetMissing, resolve
from workers.probes import guards
from workers.protocol import Guard, PatchMode, PatchState

logger = logging.getLogger("vllm.shardproof.full_graph_sp")

HELPER_NAME = "is_residual_scattered_for_sp"
HELPER_USERS = ("vllm.v1.worker.utils", "vllm.v1.worker.gpu_model_runner", "vllm.v1.worker.gpu_worker")
"""Modules that hold a binding of the helper of their own once they are imported."""

REQUIRED = ("config-rule", "sp-pass", "runner-helper")
"""Guards every version with SP can be asked about; async TP is only there on GPUs."""


def establish(mode: PatchMode) -> PatchState:
    """Make sure the guards are there (``on``), take them away (``off``) or leave them as found (``native``).

    A version without SP has nothing to guard: there they are ``absent`` whatever is asked.
    """
    try:
        _restore()
        if not guards.has_sequence_parallelism():
            return PatchState.ABSENT
        held = _held()
        if mode is PatchMode.OFF:
            _wrap(_rule_removed, _pass_removed, _helper_removed)
            return PatchState.REMOVED
        if held:
            return PatchState.NATIVE
        if mode is PatchMode.NATIVE:
            return PatchState.ABSENT
        _wrap(_rule_applied, _pass_applied, _helper_applied)
        return PatchState.APPLIED
    except TargetMissing as missing:
        logger.warning("patch-target-missing: %s", missing)
        return PatchState.TARGET_MISSING


def impose() -> PatchState:
    """Replace the native guards by ours: the way to see both behave the same on one version."""
    _restore()
    _wrap(
        lambda original: _rule_applied(_rule_removed(original)),
        lambda original: _pass_applied(_pass_removed(original)),
        lambda original: _helper_applied(_helper_removed(original)),
    )
    return PatchState.APPLIED


def missing() -> str | None:
    """The first guard that cannot be asked, and why; ``None`` when all can."""
    found = [guard for guard in _required() if guard.held is None]
    return f"guard {found[0].name}: {found[0].detail}" if found else None


def _held() -> bool:
    required = _required()
    for guard in required:
        if guard.held is None:
            raise TargetMissing(guard.name, f"know whether the guard is native: {guard.detail}")
    return all(guard.held for guard in required)


def _required() -> list[Guard]:
    return [guard for guard in guards.check_guards() if guard.name in REQUIRED]


# --- what is put around the originals -------------------------------------------------------------------------------


def needs_full_graph(config: Any) -> bool:
    """SP or async TP is on and the graph would be split: ``config`` is a vLLM ``CompilationConfig``."""
    passes = config.pass_config
    wanted = passes.enable_sp or passes.fuse_gemm_comms
    return bool(wanted and config.splitting_ops and not config.use_inductor_graph_partition)


def _rule_applied(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def rule(config: Any, *args: Any, **kwargs: Any) -> None:
        from vllm.config import CompilationMode, CUDAGraphMode

        original(config, *args, **kwargs)
        if config.mode != CompilationMode.VLLM_COMPILE or not needs_full_graph(config):
            return
        logger.warning(
            "Sequence parallelism needs the full graph compiled: splitting_ops %s becomes []", config.splitting_ops
        )
        config.splitting_ops = []
        if config.cudagraph_mode.has_piecewise_cudagraphs():
            logger.warning(
                "Sequence parallelism cannot use piecewise CUDA graphs: cudagraph_mode %s becomes FULL",
                config.cudagraph_mode.name,
            )
            config.cudagraph_mode = CUDAGraphMode.FULL

    return rule


def _rule_removed(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def rule(config: Any, *args: Any, **kwargs: Any) -> None:
        passes = config.pass_config
        kept = passes.enable_sp, passes.fuse_gemm_comms
        passes.enable_sp = passes.fuse_gemm_comms = False
        try:
            original(config, *args, **kwargs)
        finally:
            passes.enable_sp, passes.fuse_gemm_comms = kept

    return rule


def _is_full_graph(config: Any) -> bool:
    return bool(config.use_inductor_graph_partition or not config.splitting_ops)


FULL_GRAPH = SimpleNamespace(splitting_ops=[], use_inductor_graph_partition=False)


def _pass_applied(original: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(original)
    def is_applicable_for_range(self: Any, compile_range: Any) -> bool:
        assert _is_full_graph(self.compilation_config), f"{type(self).__name__} requires full-graph compilation"
        return original(self, compile_range)

    return is_applicable_for_range


def _pass_removed(original: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(original)
    def is_applicable_for_range(self: Any, compile_range: Any) -> bool:
        kept = self.compilation_config
        self.compilation_config = FULL_GRAPH
        try:
            return original(self, compile_range)
        finally:
            self.compilation_config = kept

    return is_applicable_for_range


def _helper_applied(original: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(original)
    def is_residual_scattered_for_sp(vllm_config: Any, num_input_tokens: int) -> bool:
        parallel = vllm_config.parallel_config.tensor_parallel_size > 1
        if vllm_config.compilation_config.pass_config.enable_sp and parallel:
            assert _is_full_graph(vllm_config.compilation_config), (
                "Sequence parallelism requires full-graph compilation"
            )
        return original(vllm_config, num_input_tokens)

    return is_residual_scattered_for_sp


def _helper_removed(original: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(original)
    def is_residual_scattered_for_sp(vllm_config: Any, num_input_tokens: int) -> bool:
        seen = SimpleNamespace(
            compilation_config=SimpleNamespace(
                **vars(FULL_GRAPH), pass_config=vllm_config.compilation_config.pass_config
            ),
            parallel_config=vllm_config.parallel_config,
        )
        return original(seen, num_input_tokens)

    return is_residual_scattered_for_sp


# --- putting them there and taking them off ---------------------------------------------------------------------------

_undo: list[Callable[[], None]] = []


def _restore() -> None:
    while _undo:
        _undo.pop()()


def _wrap(
    rule: Callable[[Any], Any],
    applicable: Callable[[Any], Any],
    helper: Callable[[Any], Any],
) -> None:
    purpose = "patch full_graph_sp"
    _replace(resolve("vllm.config.compilation:CompilationConfig", purpose), "set_splitting_ops_for_v1", rule)
    _replace(resolve(guards.SP_PASS, purpose), "is_applicable_for_range", applicable)
    try:
        async_tp = resolve(guards.ASYNC_TP_PASS, purpose)
    except TargetMissing:
        logger.info("async TP pass is not there on this platform, nothing to patch in it")
    else:
        _replace(async_tp, "is_applicable_for_range", applicable)
    original = resolve(guards.RUNNER_HELPER, purpose)
    wrapped = helper(original)
    for module in _helper_users():
        setattr(module, HELPER_NAME, wrapped)
    _undo.append(lambda: _give_back(original, wrapped))


def _helper_users() -> list[ModuleType]:
    loaded = (sys.modules.get(name) for name in HELPER_USERS)
    return [module for module in loaded if module is not None and hasattr(module, HELPER_NAME)]


def _give_back(original: Any, wrapped: Any) -> None:
    """Also in a module that was imported in the meantime: it has taken its binding from the wrapped one."""
    for module in _helper_users():
        if getattr(module, HELPER_NAME) is wrapped:
            setattr(module, HELPER_NAME, original)


def _replace(owner: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
    _set(owner, name, wrapper(getattr(owner, name)))


def _set(owner: Any, name: str, value: Any) -> None:
    before = getattr(owner, name)
    setattr(owner, name, value)
    _undo.append(lambda: setattr(owner, name, before))
