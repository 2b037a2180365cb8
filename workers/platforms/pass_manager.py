"""vLLM's post-grad pass manager with the sequence-parallel pass, which it imports only on CUDA and XPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm.compilation.passes import pass_manager
from vllm.compilation.passes.inductor_pass import InductorPass

from workers.engine.internals import resolve
from workers.probes.guards import SP_PASS, has_sequence_parallelism
from workers.probes.passes import install

if TYPE_CHECKING:
    import torch.fx
    from vllm.config import VllmConfig


class NoFixFunctionalization(InductorPass):
    """Takes the place of a pass that names CUDA-only operations. Inductor de-functionalises by itself."""

    def __call__(self, graph: torch.fx.Graph) -> None:
        return


class CpuPassManager(pass_manager.PostGradPassManager):
    def configure(self, config: VllmConfig) -> None:
        if has_sequence_parallelism():
            # The parent looks the pass up in its own module, where only CUDA and XPU have it.
            found = resolve(SP_PASS, "let the engine run its sequence-parallel pass on CPU")
            pass_manager.SequenceParallelismPass = found  # type: ignore[attr-defined]
        super().configure(config)
        self.fix_functionalization = NoFixFunctionalization()  # type: ignore[assignment]
        install(self, config)
