"""The four guards of full-graph SP, each asked directly whether it holds. No engine is needed.

A guard is put the question it exists for, a piecewise configuration with SP on, and has to object: the config rule by
rewriting ``splitting_ops``, the passes and the runner's helper by an assertion.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import logging
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from workers.engine.internals import TargetMissing, forget_logged_once, resolve
from workers.protocol import Guard

ATTENTION_OP = "vllm::unified_attention_with_output"

CONFIG_RULE = "vllm.config.compilation:CompilationConfig.set_splitting_ops_for_v1"
SP_PASS = "vllm.compilation.passes.fusion.sequence_parallelism:SequenceParallelismPass"
ASYNC_TP_PASS = "vllm.compilation.passes.fusion.collective_fusion:AsyncTPPass"
RUNNER_HELPER = "vllm.v1.worker.utils:is_residual_scattered_for_sp"


def has_sequence_parallelism() -> bool:
    """Whether this vLLM can be asked for SP at all; versions from 0.32 have neither its settings nor its pass."""
    passes = resolve("vllm.config.compilation:PassConfig", "see whether there is sequence parallelism")
    return any(field.name == "enable_sp" for field in dataclasses.fields(passes))


def check_guards() -> list[Guard]:
    """Ask all four, in the order config, passes, runner."""
    checks: dict[str, Callable[[], tuple[bool, str]]] = {
        "config-rule": _config_rule,
        "sp-pass": lambda: _pass_asserts(SP_PASS),
        "async-tp-pass": lambda: _pass_asserts(ASYNC_TP_PASS),
        "runner-helper": _runner_helper,
    }
    with _quietly():
        return [_ask(name, check) for name, check in checks.items()]


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """The questions make vLLM warn about a configuration that nobody runs, and it warns once per process."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))
    try:
        yield
    finally:
        logging.disable(before)
        forget_logged_once()


def _ask(name: str, check: Callable[[], tuple[bool, str]]) -> Guard:
    try:
        held, detail = check()
    except TargetMissing as missing:
        return Guard(name=name, held=None, detail=str(missing))
    except Exception as error:
        # A version that has the name but no longer takes the question, such as one without SP's settings.
        return Guard(name=name, held=None, detail=f"cannot be asked here: {type(error).__name__}: {error}")
    return Guard(name=name, held=held, detail=detail)


def _config_rule() -> tuple[bool, str]:
    config = piecewise_config()
    rule = resolve(CONFIG_RULE, "check that SP makes the config compile the full graph")
    known = inspect.signature(rule).parameters
    given = {"all2all_backend": "allgather_reducescatter", "data_parallel_size": 1}
    rule(config, **{name: value for name, value in given.items() if name in known})
    return not config.splitting_ops, f"splitting_ops became {config.splitting_ops}"


def piecewise_config(**overrides: Any) -> Any:
    """vLLM's ``CompilationConfig`` with SP on and the attention operation split out."""
    from vllm.config import CompilationConfig, CompilationMode, CUDAGraphMode
    from vllm.config.compilation import PassConfig

    settings: dict[str, Any] = {
        "mode": CompilationMode.VLLM_COMPILE,
        "splitting_ops": [ATTENTION_OP],
        "use_inductor_graph_partition": False,
        "cudagraph_mode": CUDAGraphMode.NONE,
        "pass_config": PassConfig(enable_sp=True),
    }
    return CompilationConfig(**(settings | overrides))


def _pass_asserts(path: str) -> tuple[bool, str]:
    pass_class = resolve(path, "check that the pass refuses piecewise compilation")
    from vllm.config.utils import Range

    # The constructor traces patterns and needs a process group; the guard reads these two attributes alone.
    instance = object.__new__(pass_class)
    instance.compilation_config = SimpleNamespace(splitting_ops=[ATTENTION_OP], use_inductor_graph_partition=False)
    instance.min_token_num = 1
    return _asserts(lambda: instance.is_applicable_for_range(Range(start=1, end=8)))


def _runner_helper() -> tuple[bool, str]:
    helper = resolve(RUNNER_HELPER, "check that the runner refuses piecewise compilation with SP")
    config = SimpleNamespace(
        compilation_config=SimpleNamespace(
            splitting_ops=[ATTENTION_OP],
            use_inductor_graph_partition=False,
            compile_sizes=[],
            pass_config=SimpleNamespace(enable_sp=True),
        ),
        parallel_config=SimpleNamespace(tensor_parallel_size=2),
    )
    return _asserts(lambda: helper(config, 8))


def _asserts(call: Callable[[], Any]) -> tuple[bool, str]:
    try:
        answer = call()
    except AssertionError as error:
        return True, f"asserts: {error}"
    return False, f"answered {answer} for a piecewise configuration"
