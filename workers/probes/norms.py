"""The weights of a model's norms, which every rank holds in full: as hashes, to be compared between ranks."""

from __future__ import annotations

import hashlib

import torch
from vllm.model_executor.layers.layernorm import GemmaRMSNorm, RMSNorm


def hashes(model: torch.nn.Module) -> dict[str, str]:
    """Name of the parameter → hash of its bits."""
    return {
        f"{name}.weight": _hash(module.weight)
        for name, module in model.named_modules()
        if isinstance(module, RMSNorm | GemmaRMSNorm) and isinstance(module.weight, torch.Tensor)
    }


def _hash(weight: torch.Tensor) -> str:
    bits = weight.detach().contiguous().cpu().view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(bits).hexdigest()[:16]
