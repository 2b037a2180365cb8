"""A chain of operations that Inductor has no lowering for, each layer like one of a tensor-parallel transformer.

A layer adds and norms (two outputs), multiplies and sums up over the ranks, as vLLM's operations do; the values mean
nothing. At the end stands an operation that occurs nowhere else. What Inductor says of that one's input describes every
layer before it, and names the sum of a layer twice: once for each of the two outputs of the next.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

NAMESPACE = "vllm"
"""That of the operations which the patch lets pass."""

TOKENS, HIDDEN = 4, 8

_numbers = itertools.count()


@dataclass(frozen=True)
class Chain:
    """Inductor makes a fallback once per operation and process, so each chain has operations of its own.

    ``add_norm`` and ``reduce`` are first used in the first layer, ``last`` behind all.
    """

    depth: int
    add_norm: Any
    reduce: Any
    last: Any

    def __call__(self, x: torch.Tensor, residual: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
        for weight in weights:
            x, residual = self.add_norm(x, residual)
            x = self.reduce(torch.mm(x, weight))
        return torch.as_tensor(self.last(x, residual))

    def compile(self) -> torch.Tensor:
        """Compile for inputs of its depth, and run once. Nothing is taken from a cache."""
        torch.compiler.reset()
        compiled = torch.compile(self, fullgraph=True, dynamic=False, options={"fx_graph_cache": False})
        draw = torch.Generator().manual_seed(0)
        x, residual = torch.randn(2, TOKENS, HIDDEN, generator=draw)
        weights = list(torch.randn(self.depth, HIDDEN, HIDDEN, generator=draw))
        return torch.as_tensor(compiled(x, residual, weights))


def make(depth: int) -> Chain:
    """A chain of ``depth`` layers, of operations that no other chain has."""
    number = next(_numbers)
    return Chain(
        depth,
        add_norm=_define(f"bench_add_norm_{number}", "(Tensor x, Tensor r) -> (Tensor, Tensor)", _add_norm),
        reduce=_define(f"bench_reduce_{number}", "(Tensor x) -> Tensor", torch.clone),
        last=_define(f"bench_last_{number}", "(Tensor x, Tensor r) -> Tensor", torch.add),
    )


def _define(name: str, signature: str, function: Callable[..., Any]) -> Any:
    """An operation of this process. ``function`` also tells the compiler what comes out of it."""
    full = f"{NAMESPACE}::{name}"
    torch.library.define(full, signature)
    torch.library.impl(full, "cpu", function)
    torch.library.register_fake(full, function)
    return getattr(getattr(torch.ops, NAMESPACE), name).default


def _add_norm(x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    total = x + residual
    return torch.nn.functional.normalize(total), total
