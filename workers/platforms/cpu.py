"""A CPU platform on which vLLM compiles as it does on a GPU: its own backend, its own passes, its own cache.

The stock CPU platform rewrites ``VLLM_COMPILE`` to ``DYNAMO_TRACE_ONCE`` and thereby never runs vLLM's passes. Every
step back is an official platform hook; the reasons stand beside them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vllm.platforms.cpu import CpuPlatform

from workers import environment

if TYPE_CHECKING:
    from vllm.config import VllmConfig

COLLECTIVE_ENV = "SHARDPROOF_CPU_COLLECTIVE"
IN_PLACE = "in-place"

GPU_ONLY_PASSES = (
    "fuse_rope_kvcache_cat_mla",
    "fuse_norm_quant",
    "fuse_act_quant",
    "fuse_attn_quant",
    "fuse_allreduce_rms",
    "fuse_rope_kvcache",
    "fuse_qk_norm_rope_kvcache",
    "enable_qk_norm_rope_fusion",
    "fuse_act_padding",
    "fuse_mla_dual_rms_norm",
)
"""Pass switches whose passes exist for GPUs alone. Versions differ in which they have."""


class FullCompileCpuPlatform(CpuPlatform):
    @classmethod
    def check_and_update_config(cls, vllm_config: VllmConfig) -> None:
        from vllm.config import CompilationMode

        compilation = vllm_config.compilation_config
        asked = compilation.mode
        super().check_and_update_config(vllm_config)
        if environment.ranks_may_fork():
            # vLLM's own default, which the stock platform overrides: ranks then have the imports of this process.
            os.environ[environment.RANKS_METHOD] = "fork"
        if vllm_config.lora_config is not None or asked != CompilationMode.VLLM_COMPILE:
            return
        compilation.mode = asked
        compilation.backend = "inductor"
        # The stock platform hands Inductor an option that vLLM's own compiler interface does not accept.
        compilation.inductor_compile_config.pop("dce", None)
        # The passes look for vLLM's IR operations, so the IR has to be in the graph.
        compilation.ir_enable_torch_wrap = True
        if compilation.compile_sizes is None:
            # None is filled in from the CUDA graph sizes, and those lie outside of the considered ranges here.
            compilation.compile_sizes = []
        for name in GPU_ONLY_PASSES:
            if hasattr(compilation.pass_config, name):
                setattr(compilation.pass_config, name, False)

    @classmethod
    def device_count(cls) -> int:
        """As many as this machine has ranks: vLLM tells by it which ranks share a machine. The stock answer is one."""
        return int(os.environ.get(environment.LOCAL_RANKS, 1))

    @classmethod
    def use_custom_op_collectives(cls) -> bool:
        # Only then is torch.ops.vllm.all_reduce in the graph for the SP pass to find.
        return True

    @classmethod
    def get_pass_manager_cls(cls) -> str:
        return "workers.platforms.pass_manager.CpuPassManager"

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        if os.environ.get(COLLECTIVE_ENV) == IN_PLACE:
            return super().get_device_communicator_cls()
        if os.environ.get(environment.FAULTS) == "1":
            return "workers.selftest.communicator.FaultyCpuCommunicator"
        return "workers.platforms.communicator.OutOfPlaceCpuCommunicator"
