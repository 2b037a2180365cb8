"""From a cell's dotted settings to vLLM's ``EngineArgs``.

The same function serves audit and engine: what was audited is what runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workers.engine import models
from workers.probes.describe import nested_config, settings_of
from workers.protocol import Settings

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.engine.arg_utils import EngineArgs

HARNESS: Settings = {
    # Prompts are token ids; a model without a tokenizer serves as well.
    "skip_tokenizer_init": True,
    # Two arms have to compute the same tokens in the same order.
    "enable_prefix_caching": False,
    "seed": 0,
}
"""Settings a measurement needs, where the user wrote nothing else."""

HARNESS_CPU: Settings = {"kv_cache_memory_bytes": 128 * 2**20}

EXECUTOR = "distributed_executor_backend"


def nest(settings: Mapping[str, Any]) -> dict[str, Any]:
    """``{"a.b": 1}`` as ``{"a": {"b": 1}}``. A mapping given as a whole takes the dotted keys that reach into it."""
    nested: dict[str, Any] = {}
    for key in sorted(settings, key=lambda key: key.count(".")):
        *parents, last = key.split(".")
        target = nested
        for parent in parents:
            target = target.setdefault(parent, {})
        target[last] = settings[key]
    return nested


def with_harness(settings: Settings) -> Settings:
    """``settings`` on top of what the harness needs."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        return HARNESS | HARNESS_CPU | settings
    return HARNESS | executor(settings, current_platform.device_count()) | settings


def executor(settings: Settings, devices: int) -> Settings:
    """The executor, where a machine with so many GPUs has too few for all ranks: several machines may have them.

    vLLM refuses such a configuration as long as nobody names one. Whether the cluster has room is not asked here.
    """
    ranks = 1
    for key in ("tensor_parallel_size", "pipeline_parallel_size"):
        size = settings.get(key)
        ranks *= size if isinstance(size, int) else 1
    return {EXECUTOR: "mp"} if ranks > devices > 0 else {}


def engine_args(settings: Settings, models_dir: str) -> EngineArgs:
    """vLLM's arguments for ``settings``, its ``tiny:`` model built if need be."""
    from vllm.engine.arg_utils import EngineArgs

    complete = with_harness(settings)
    if isinstance(complete.get("model"), str):
        complete["model"] = models.locate(complete["model"], models_dir)
    args = EngineArgs(**nest(complete))
    _build_nested(args)
    return args


def _build_nested(args: EngineArgs) -> None:
    """vLLM makes objects of some of its nested settings; of the others its own command line does."""
    for field, annotation in settings_of(type(args)):
        inner, value = nested_config(annotation), getattr(args, field.name)
        if inner is not None and isinstance(value, dict):
            setattr(args, field.name, inner(**value))


def engine_config(settings: Settings, models_dir: str) -> VllmConfig:
    """The configuration that an engine with ``settings`` would run, built by vLLM itself."""
    from vllm.usage.usage_lib import UsageContext

    return engine_args(settings, models_dir).create_engine_config(usage_context=UsageContext.LLM_CLASS)
