"""Settings the engine takes without a word and that cannot work: it would die of them, minutes later, as it starts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from workers.engine import internals
from workers.probes.checkpoint import CheckpointError, check
from workers.protocol import AuditCell, Problem, Settings

if TYPE_CHECKING:
    from vllm.config import VllmConfig

NO_WEIGHTS = "dummy"
"""The ``load_format`` that reads no checkpoint."""


def unfit(config: VllmConfig, cell: AuditCell) -> list[Problem]:
    """What is wrong with ``config``, which vLLM made of the settings of ``cell``."""
    return [*_norm(config, cell.engine), *_layout(config), *_weights(config), *_sites(config, cell)]


def is_named(key: str, value: Any, text: str) -> bool:
    """Whether ``text`` speaks of the setting ``key`` or of something that its ``value`` sets."""
    inner = value if isinstance(value, dict) else ()
    return any(name in text for name in (key.rpartition(".")[2], *inner))


def _norm(config: VllmConfig, requested: Settings) -> Iterator[Problem]:
    epsilon = getattr(config.model_config.hf_text_config, "rms_norm_eps", None)
    if epsilon is None or 0 < epsilon < math.inf:
        return
    overridden = [key for key, value in requested.items() if is_named(key, value, "rms_norm_eps")]
    yield Problem(
        key=overridden[0] if overridden else "model",
        message=f"the model's rms_norm_eps is {epsilon}: a norm needs a positive number there",
        hint="set it above 0; vLLM's SP pass knows 1e-5 and 1e-6",
    )


def _layout(config: VllmConfig) -> Iterator[Problem]:
    """vLLM itself refuses ranks that do not divide the attention heads, when it builds the configuration."""
    ranks, stages = config.parallel_config.tensor_parallel_size, config.parallel_config.pipeline_parallel_size
    layers = config.model_config.get_total_num_hidden_layers()
    if stages > layers:
        message = f"{stages} pipeline stages for {layers} layers: a stage would have none"
        hint = f"Ask for at most {layers}"
        yield Problem(key="pipeline_parallel_size", message=message, hint=hint)
    text = config.model_config.hf_text_config
    heads = config.model_config.get_total_num_kv_heads()
    # A mixture of experts may have no dense layer of that size, and ranks may share experts whole.
    dense = getattr(config.model_config, "get_num_experts", int)() == 0
    sizes = {"intermediate_size": getattr(text, "intermediate_size", None) if dense else None}
    # Fewer heads of keys and values than ranks are doubled, each on as many ranks as the next.
    sizes["num_key_value_heads"] = heads if heads >= ranks or ranks % heads else None
    for name, size in sizes.items():
        if isinstance(size, int) and size % ranks:
            message = f"the model's {name} is {size}, which {ranks} ranks cannot share equally"
            hint = "Ask for a number of ranks that divides it"
            yield Problem(key="tensor_parallel_size", message=message, hint=hint)


def _weights(config: VllmConfig) -> Iterator[Problem]:
    if str(config.load_config.load_format) == NO_WEIGHTS or config.model_config.quantization is not None:
        return
    try:
        check(config.model_config.model, config.model_config.hf_config)
    except CheckpointError as error:
        hint = "Fetch or save the checkpoint again; one without weights runs with load_format: dummy"
        yield Problem(key="model", message=str(error), hint=hint)


def _sites(config: VllmConfig, cell: AuditCell) -> Iterator[Problem]:
    """An engine that does not compile is recorded by hooks on its modules."""
    from vllm.config import CompilationMode

    if not cell.taps or config.compilation_config.mode != CompilationMode.VLLM_COMPILE:
        return
    for missing in internals.missing_sites():
        yield Problem(
            key=None,
            message=f"the residual cannot be recorded: {missing}",
            hint="Use a version of vLLM that has it, or leave out the checks residual and outputs",
        )
