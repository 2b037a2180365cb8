"""Taps: points in the compiled graph where the residual is recorded on each rank.

The residual of a transformer is output 1 of ``fused_add_rms_norm``, and the input of the first ``rms_norm``. A tap is
an operation put behind the norm: it takes the norm's output (the carrier) and the residual, records the residual and
returns a copy of the carrier. Hanging on the carrier it survives dead-code removal even where nobody reads the
residual any more, and the data dependence keeps taps in layer order.
"""

from __future__ import annotations

import operator
import os
from typing import TYPE_CHECKING

import torch
from vllm.compilation.passes.inductor_pass import InductorPass

from workers import environment
from workers.engine import internals
from workers.probes.recorder import RECORDER

if TYPE_CHECKING:
    import torch.fx


def wanted() -> bool:
    return os.environ.get(environment.TAPS) == "1"


@torch.library.custom_op("shardproof::tap", mutates_args=())
def tap(carrier: torch.Tensor, residual: torch.Tensor, index: int, count: int) -> torch.Tensor:
    """Record ``residual`` (tokens × hidden, this rank's part) as number ``index`` of ``count`` in its graph."""
    RECORDER.record(residual, index, count)
    return carrier.clone()


@tap.register_fake
def _(carrier: torch.Tensor, residual: torch.Tensor, index: int, count: int) -> torch.Tensor:
    return torch.empty_like(carrier)


def residual_sites(graph: torch.fx.Graph, hidden_size: int) -> list[tuple[torch.fx.Node, torch.fx.Node]]:
    """(carrier, residual) of each site in graph order, adding the ``getitem`` nodes that are not there yet."""
    sites = []
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if node.target == torch.ops.vllm_ir.fused_add_rms_norm.default:
            sites.append((_output(graph, node, 0), _output(graph, node, 1)))
        elif node.target == torch.ops.vllm_ir.rms_norm.default and _is_hidden(node.args[0], hidden_size):
            sites.append((node, node.args[0]))
    return sites


def _is_hidden(node: torch.fx.Node, hidden_size: int) -> bool:
    """Norms of queries and keys work on heads; only the first norm of the model sees tokens × hidden."""
    value = node.meta["val"]
    return bool(value.dim() == 2 and value.shape[-1] == hidden_size)


def _output(graph: torch.fx.Graph, node: torch.fx.Node, index: int) -> torch.fx.Node:
    for user in node.users:
        if user.target is operator.getitem and user.args[1] == index:
            return user
    with graph.inserting_after(node):
        item = graph.call_function(operator.getitem, (node, index))
    item.meta["val"] = node.meta["val"][index]
    return item


class TapPass(InductorPass):
    """Puts a tap behind every site. Runs after vLLM's rewrites and before its IR is lowered."""

    def __init__(self, hidden_size: int) -> None:
        for name in ("tap", "tap_through"):
            internals.allow_fallback(f"shardproof::{name}")
        self.hidden_size = hidden_size
        self.through = os.environ.get(environment.FAULTS) == "1"

    def __call__(self, graph: torch.fx.Graph) -> None:
        sites = residual_sites(graph, self.hidden_size)
        for index, (carrier, residual) in enumerate(sites):
            if self.through:
                from workers.selftest import taps as faulty

                faulty.insert(graph, carrier, residual, index, len(sites))
                continue
            last = max(carrier, residual)
            with graph.inserting_after(last):
                node = graph.call_function(torch.ops.shardproof.tap.default, (carrier, residual, index, len(sites)))
            value = carrier.meta["val"]
            with value.fake_mode:
                node.meta["val"] = torch.empty_like(value)
            _take_the_place_of(carrier, node)


def _take_the_place_of(carrier: torch.fx.Node, tap_node: torch.fx.Node) -> None:
    """Whoever read ``carrier`` reads the tap's copy, but for the tap itself."""
    carrier.replace_all_uses_with(tap_node, delete_user_cb=lambda user: user is not tap_node)
