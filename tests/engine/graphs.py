"""Graphs such as post-grad passes see, of a model of two layers, for the tests of what is put into them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import vllm.distributed
import vllm.ir.ops  # noqa: F401  (registers vLLM's IR)
from torch.fx.experimental.proxy_tensor import make_fx
from vllm.compilation.passes.inductor_pass import pass_context
from vllm.config.utils import Range

from workers.probes.recorder import Recorder
from workers.probes.slots import Capacity
from workers.probes.taps import TapPass

HIDDEN, HEADS, TOKENS, EPSILON = 32, 4, 5, 1e-5
FIRST, LAST = 1, 64
"""The compile range of all graphs here."""
CAPACITY = Capacity(rows=16, whole=True)

TAP = torch.ops.shardproof.tap.default
TAP_GATHERED = torch.ops.shardproof.tap_gathered.default

rms_norm: Any = torch.ops.vllm_ir.rms_norm.default
fused_add_rms_norm: Any = torch.ops.vllm_ir.fused_add_rms_norm.default


class Weights:
    """Of a model of two layers: norms, and a matrix in place of attention and MLP."""

    def __init__(self) -> None:
        draw = torch.Generator().manual_seed(0)
        self.norms = [torch.rand(HIDDEN, generator=draw) + 0.5 for _ in range(5)]
        self.mixers = [torch.randn(HIDDEN, HIDDEN, generator=draw) / HIDDEN**0.5 for _ in range(4)]
        self.head_norm = torch.rand(HIDDEN // HEADS, generator=draw)
        self.input = torch.randn(TOKENS, HIDDEN, generator=draw)


WEIGHTS = Weights()


def model(x: torch.Tensor) -> Any:
    """Norm, mix, then four times norm with residual and mix. The last residual is read by nobody."""
    carrier, residual = rms_norm(x, WEIGHTS.norms[0], EPSILON), x
    for norm, mixer in zip(WEIGHTS.norms[1:], WEIGHTS.mixers, strict=True):
        carrier, residual = fused_add_rms_norm(torch.relu(carrier) @ mixer, residual, norm, EPSILON)
    return carrier


def true_residuals(x: torch.Tensor) -> list[torch.Tensor]:
    """By plain PyTorch: every sum of the branch's output and what was there before."""
    residuals = [x]
    for index, mixer in enumerate(WEIGHTS.mixers):
        carrier = rms_norm(residuals[-1], WEIGHTS.norms[index], EPSILON)
        residuals.append(torch.relu(carrier) @ mixer + residuals[-1])
    return residuals


def trace(function: Callable[..., Any], *inputs: torch.Tensor, symbolic: bool = True) -> torch.fx.GraphModule:
    """A graph such as post-grad passes see: ATen and vLLM's IR, fake tensors as values."""
    graph: torch.fx.GraphModule = make_fx(
        function, tracing_mode="symbolic" if symbolic else "fake", _allow_non_fake_inputs=True
    )(*inputs)
    return graph


def tapped(function: Callable[..., Any], *inputs: torch.Tensor) -> torch.fx.GraphModule:
    """``function`` as a graph with taps, cleaned as Inductor would."""
    module = trace(function, *inputs)
    with pass_context(Range(start=FIRST, end=LAST)):
        TapPass(HIDDEN)(module.graph)
    module.graph.eliminate_dead_code()
    module.graph.lint()
    module.recompile()
    return module


def tap_nodes(module: torch.fx.GraphModule, target: Any = TAP) -> list[Any]:
    return list(module.graph.find_nodes(op="call_function", target=target))


def one_step(record: Recorder, run: Callable[[], Any], padded: int = TOKENS) -> list[Any]:
    """What a step that runs ``run`` keeps, by site."""
    record.begin(TOKENS)
    record.forward(padded)
    run()
    record.end()
    return record.steps[-1].sites


def all_reduce(x: torch.Tensor) -> Any:
    return torch.ops.vllm.all_reduce(x, "tp")


def reduce_scatter(x: torch.Tensor) -> Any:
    return torch.ops.vllm.reduce_scatter(x, 0, 2, "tp")


def all_gather(x: torch.Tensor) -> Any:
    return torch.ops.vllm.all_gather(x, 0, 2, "tp")
