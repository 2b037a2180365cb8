"""A rounding error in every element of the embedding, by which the noise floor is measured.

Each weight of the embedding is multiplied by 1 + eps or 1 - eps of its format, drawn from a seed: what the model is
given then differs in its last digit, as it might by any right way of computing it.
"""

from __future__ import annotations

import torch


class Rounding:
    """Scales the embedding of one model in place, and puts it back."""

    def __init__(self) -> None:
        self._kept: list[tuple[torch.nn.Parameter, torch.Tensor]] = []

    def restore(self) -> None:
        """The weights as they were, to the bit."""
        for weight, original in self._kept:
            weight.data.copy_(original)
        self._kept = []

    def apply(self, model: torch.nn.Module, seed: int) -> int:
        """Scale the embedding of ``model``; the number of weights changed, 0 where this stage has no embedding."""
        self.restore()
        for weight in _embeddings(model):
            self._kept.append((weight, weight.data.clone()))
            weight.data.copy_(scaled(weight.data, seed))
        return sum(weight.numel() for weight, _ in self._kept)


def scaled(value: torch.Tensor, seed: int) -> torch.Tensor:
    """``value`` with every element multiplied by 1 ± eps of its format."""
    draw = torch.Generator().manual_seed(seed)
    up = torch.randint(0, 2, value.shape, generator=draw, dtype=torch.bool).to(value.device)
    eps = torch.finfo(value.dtype).eps
    wide = value.double()
    return torch.where(up, wide * (1 + eps), wide * (1 - eps)).to(value.dtype)


def _embeddings(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The weights of vLLM's embedding of tokens; the head of the model is one by class and none by purpose."""
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

    found = [
        module.weight
        for module in model.modules()
        if isinstance(module, VocabParallelEmbedding) and not isinstance(module, ParallelLMHead)
    ]
    return [weight for weight in found if isinstance(weight, torch.nn.Parameter)]


ROUNDING_ERROR = Rounding()
