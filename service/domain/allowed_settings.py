"""The engine settings and variables that every submitted matrix may set: none of them names code, a file or an address.

A setting that vLLM gains is not in it until somebody has looked at it.
"""

from __future__ import annotations

from typing import Any

MODELS = ("model", "tokenizer")
"""Settings that name a model, which is looked at by itself."""

VALUES: dict[str, tuple[Any, ...]] = {
    "trust_remote_code": (False,),
    "load_format": ("auto", "safetensors", "dummy"),
    "model_impl": ("auto", "vllm", "transformers"),
    "tokenizer_mode": ("auto", "hf", "slow", "mistral"),
    "distributed_executor_backend": ("mp", "ray", "uni"),
    "compilation_config.backend": ("", "inductor", "eager"),
}
"""Settings of which other values name code: what of them may be written."""

SETTINGS = (
    # numbers and types
    "dtype",
    "kv_cache_dtype",
    "kv_cache_dtype_skip_layers",
    "quantization",
    "seed",
    "revision",
    "tokenizer_revision",
    "runner",
    "convert",
    "skip_tokenizer_init",
    "enable_prompt_embeds",
    "served_model_name",
    "safetensors_load_strategy",
    # ranks
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "prefill_context_parallel_size",
    "decode_context_parallel_size",
    "dcp_comm_backend",
    "dcp_kv_cache_interleave_size",
    "cp_kv_cache_interleave_size",
    "enable_expert_parallel",
    "enable_ep_weight_filter",
    "all2all_backend",
    "enable_dbo",
    "ubatch_size",
    "dbo_decode_token_threshold",
    "dbo_prefill_token_threshold",
    "enable_eplb",
    "eplb_config.*",
    "expert_placement_strategy",
    "disable_custom_all_reduce",
    # memory and scheduling
    "max_model_len",
    "block_size",
    "enable_prefix_caching",
    "prefix_caching_hash_algo",
    "disable_sliding_window",
    "disable_cascade_attn",
    "disable_hybrid_kv_cache_manager",
    "gpu_memory_utilization",
    "kv_cache_memory_bytes",
    "num_gpu_blocks_override",
    "max_num_batched_tokens",
    "max_num_scheduled_tokens",
    "max_num_seqs",
    "max_logprobs",
    "logprobs_mode",
    "long_prefill_token_threshold",
    "enable_chunked_prefill",
    "disable_chunked_mm_input",
    "scheduling_policy",
    "async_scheduling",
    "stream_interval",
    "kv_sharing_fast_prefill",
    "limit_mm_per_prompt",
    "limit_mm_per_prompt.*",
    "language_model_only",
    # compilation and kernels
    "enforce_eager",
    "optimization_level",
    "performance_mode",
    "compilation_config.mode",
    "compilation_config.custom_ops",
    "compilation_config.ir_enable_torch_wrap",
    "compilation_config.splitting_ops",
    "compilation_config.compile_cache_save_format",
    "compilation_config.compile_mm_encoder",
    "compilation_config.compile_sizes",
    "compilation_config.compile_ranges_endpoints",
    "compilation_config.cudagraph_*",
    "compilation_config.max_cudagraph_capture_size",
    "compilation_config.use_inductor_graph_partition",
    "compilation_config.pass_config.*",
    "compilation_config.dynamic_shapes_config.*",
    "compilation_config.fast_moe_cold_start",
    "cudagraph_capture_sizes",
    "max_cudagraph_capture_size",
    "attention_backend",
    "attention_config.*",
    "moe_backend",
    "linear_backend",
    "ir_op_priority.*",
    "kernel_config.*",
    "enable_flashinfer_autotune",
    "mamba_*",
)

VARIABLES = (
    "SHARDPROOF_CPU_COLLECTIVE",
    "OMP_NUM_THREADS",
    "NCCL_ALGO",
    "NCCL_P2P_DISABLE",
    "NCCL_PROTO",
    "TORCHINDUCTOR_COMPILE_THREADS",
    "TORCHINDUCTOR_ERROR_ON_CUSTOM_OP_ALIASING",
    "TORCHINDUCTOR_FREEZING",
    "TORCHINDUCTOR_MAX_AUTOTUNE",
    "VLLM_ATTENTION_BACKEND",
    "VLLM_CPU_KVCACHE_SPACE",
    "VLLM_CPU_OMP_THREADS_BIND",
    "VLLM_DISABLE_COMPILE_CACHE",
    "VLLM_USE_AOT_COMPILE",
    "VLLM_USE_STANDALONE_COMPILE",
)
