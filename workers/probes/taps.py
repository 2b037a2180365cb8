"""Taps: points in the compiled graph where the residual is recorded on each rank.

The residual of a transformer is output 1 of ``fused_add_rms_norm``, and the input of the first ``rms_norm``. A tap is
an operation put behind the norm: it takes the norm's output (the carrier) and the residual, records the residual and
returns a copy of the carrier. Hanging on the carrier it survives dead-code removal even where nobody reads the
residual any more, and the data dependence keeps taps in layer order.
"""

from __future__ import annotations

import operator
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from vllm.compilation.passes.inductor_pass import InductorPass, get_pass_context

from workers import environment
from workers.engine import internals
from workers.probes.recorder import RECORDER

if TYPE_CHECKING:
    import torch.fx


def wanted() -> bool:
    return os.environ.get(environment.TAPS) == "1"


@torch.library.custom_op("shardproof::tap", mutates_args=())
def tap(
    carrier: torch.Tensor, residual: torch.Tensor, index: int, count: int, compile_range: list[int], scattered: bool
) -> torch.Tensor:
    """Record ``residual`` (tokens × hidden, this rank's part) as number ``index`` of ``count`` in its graph."""
    first, last = compile_range
    RECORDER.record(residual, index, count, (first, last), scattered)
    return carrier.clone()


@tap.register_fake
def _(
    carrier: torch.Tensor, residual: torch.Tensor, index: int, count: int, compile_range: list[int], scattered: bool
) -> torch.Tensor:
    return torch.empty_like(carrier)


@torch.library.custom_op("shardproof::tap_gathered", mutates_args=())
def tap_gathered(value: torch.Tensor, index: int, count: int) -> torch.Tensor:
    """Record the hash of each row of ``value`` (tokens × hidden, the same on all ranks)."""
    RECORDER.record_gathered(value, index, count)
    return value.clone()


@tap_gathered.register_fake
def _(value: torch.Tensor, index: int, count: int) -> torch.Tensor:
    return torch.empty_like(value)


OPERATIONS = ("tap", "tap_through", "tap_gathered")


@dataclass(frozen=True)
class Site:
    """Where the residual can be read. ``carrier`` is the norm's output, which somebody reads in any case.

    ``scattered``: the norm works on a rank's part, since what it is given comes from a reduce-scatter.
    """

    carrier: torch.fx.Node
    residual: torch.fx.Node
    scattered: bool


def residual_sites(graph: torch.fx.Graph, hidden_size: int) -> list[Site]:
    """Every site in graph order, adding the ``getitem`` nodes that are not there yet."""
    sites = []
    for node in list(graph.nodes):
        if is_residual_norm(node, hidden_size):
            scattered = node.args[0].target == torch.ops.vllm.reduce_scatter.default
            fused = node.target == torch.ops.vllm_ir.fused_add_rms_norm.default
            carrier, residual = (_output(graph, node, 0), _output(graph, node, 1)) if fused else (node, node.args[0])
            sites.append(Site(carrier, residual, scattered))
    return sites


def is_residual_norm(node: torch.fx.Node, hidden_size: int) -> bool:
    """Norms of queries and keys work on heads; only those of the residual see tokens × hidden."""
    if node.op != "call_function":
        return False
    if node.target == torch.ops.vllm_ir.fused_add_rms_norm.default:
        return True
    return node.target == torch.ops.vllm_ir.rms_norm.default and _is_hidden(node.args[0], hidden_size)


def _is_hidden(node: Any, hidden_size: int) -> bool:
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
    """Puts a tap behind every site and every gathered activation.

    Runs after vLLM's rewrites and before its IR is lowered.
    """

    def __init__(self, hidden_size: int) -> None:
        for name in OPERATIONS:
            internals.allow_fallback(f"shardproof::{name}")
        self.hidden_size = hidden_size
        self.through = os.environ.get(environment.FAULTS) == "1"

    def __call__(self, graph: torch.fx.Graph) -> None:
        compile_range = get_pass_context().compile_range
        sites = residual_sites(graph, self.hidden_size)
        for index, site in enumerate(sites):
            rest = (index, len(sites), [compile_range.start, compile_range.end], site.scattered)
            if self.through:
                from workers.selftest import taps as faulty

                faulty.insert(graph, site, rest)
            else:
                _insert(graph, site.carrier, torch.ops.shardproof.tap.default, (site.carrier, site.residual, *rest))
        gathered = list(graph.find_nodes(op="call_function", target=torch.ops.vllm.all_gather.default))
        for index, node in enumerate(gathered):
            _insert(graph, node, torch.ops.shardproof.tap_gathered.default, (node, index, len(gathered)))


def _insert(graph: torch.fx.Graph, carrier: torch.fx.Node, operation: Any, arguments: tuple[Any, ...]) -> None:
    """Put ``operation`` behind its inputs. Whoever read ``carrier`` reads the copy, but for the operation itself."""
    last = max(argument for argument in arguments if isinstance(argument, torch.fx.Node))
    with graph.inserting_after(last):
        node = graph.call_function(operation, arguments)
    value = carrier.meta["val"]
    with value.fake_mode:
        node.meta["val"] = torch.empty_like(value)
    carrier.replace_all_uses_with(node, delete_user_cb=lambda user: user is not node)
