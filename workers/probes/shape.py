"""What the rest of a run needs to know of a configuration that vLLM has resolved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workers.engine.settings import with_harness
from workers.probes import flatten
from workers.protocol import Settings, Shape

if TYPE_CHECKING:
    from vllm.config import VllmConfig

REFERENCE_BYTES = 4
"""Of a number in the reference, which runs in float32."""

KEY_AND_VALUE = 2
NULL_BLOCK = 1
"""vLLM keeps one block of its KV cache back."""


def shape_of(config: VllmConfig, requested: Settings) -> Shape:
    """The shape of ``config``, which vLLM made of ``requested``."""
    from vllm.config import CompilationMode

    compilation, parallel, scheduler = config.compilation_config, config.parallel_config, config.scheduler_config
    # Versions from 0.32 have no SP, nor its settings.
    sp = bool(getattr(compilation.pass_config, "enable_sp", False))
    return Shape(
        tensor_parallel_size=parallel.tensor_parallel_size,
        pipeline_parallel_size=parallel.pipeline_parallel_size,
        layers=config.model_config.get_total_num_hidden_layers(),
        hidden_size=config.model_config.get_hidden_size(),
        dtype=flatten.plain(config.model_config.dtype),
        sequence_parallelism=sp,
        full_graph=bool(compilation.use_inductor_graph_partition or not compilation.splitting_ops),
        compiled=compilation.mode == CompilationMode.VLLM_COMPILE,
        # Versions before this setting rewrite every step.
        sp_min_token_num=getattr(compilation.pass_config, "sp_min_token_num", None) if sp else None,
        compile_ranges=_compile_ranges(compilation),
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        max_model_len=config.model_config.max_model_len,
        max_num_seqs=scheduler.max_num_seqs,
        chunked_prefill=bool(scheduler.enable_chunked_prefill),
        kv_tokens=_kv_tokens(config, with_harness(requested)),
        block_size=config.cache_config.block_size,
        async_scheduling=getattr(scheduler, "async_scheduling", None),
    )


def _compile_ranges(compilation: Any) -> list[tuple[int, int]]:
    """First and last number of tokens of each range; none in a version that compiles for all sizes at once."""
    ranges: list[Any] = getattr(compilation, "get_compile_ranges", list)()
    return [(found.start, found.end) for found in ranges]


def _kv_tokens(config: VllmConfig, complete: Mapping[str, Any]) -> int | None:
    """What fits in the KV cache of one rank of the cell or in that of its reference, whichever is less.

    The reference has all heads and layers on one rank, in float32, and as many bytes as its settings say. ``None``
    where the engine takes what memory is left, or where a layer keeps something else than keys and values.
    """
    model, cache = config.model_config, config.cache_config
    if getattr(model, "is_hybrid", False) or getattr(model, "is_attention_free", False):
        return None
    dtype: Any = model.dtype
    layers, stages = model.get_total_num_hidden_layers(), config.parallel_config.pipeline_parallel_size
    # A narrower cache than the model's own dtype only holds more.
    own = -(-layers // stages) * model.get_num_kv_heads(config.parallel_config) * dtype.itemsize
    whole = layers * model.get_total_num_kv_heads() * REFERENCE_BYTES
    room = [(cache.kv_cache_memory_bytes, own), (complete.get("kv_cache_memory_bytes"), whole)]
    per_token = model.get_head_size() * KEY_AND_VALUE
    block = cache.block_size or 1
    known = [_in_blocks(size, cost * per_token, block) for size, cost in room if size is not None]
    return min(known, default=None)


def _in_blocks(size: int, token_bytes: int, block_size: int) -> int:
    return max(size // (token_bytes * block_size) - NULL_BLOCK, 0) * block_size
