"""The same sites in an eager model, from module hooks: the reference arm does not trust the compiler."""

from __future__ import annotations

from typing import Any

import torch
from vllm.model_executor.layers.layernorm import GemmaRMSNorm, RMSNorm

from workers.probes.recorder import RECORDER


def install(model: torch.nn.Module, hidden_size: int) -> None:
    """Hook every norm of ``model`` that sees the residual (tokens × ``hidden_size``).

    A norm given a residual returns it as output 1. The first norm of the model gets none: its input is the residual.
    Norms of queries and keys see heads, not tokens × hidden, and are passed over.
    """

    def after(module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if isinstance(output, tuple):
            RECORDER.append(output[1])
        elif args[0].dim() == 2 and args[0].shape[-1] == hidden_size:
            RECORDER.append(args[0])

    for module in model.modules():
        if isinstance(module, RMSNorm | GemmaRMSNorm):
            module.register_forward_hook(after)
