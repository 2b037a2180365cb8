"""A tap that also hands the residual on, so that a fault can change what the layers after it compute with."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import torch

from workers.probes.recorder import RECORDER
from workers.selftest import faults

if TYPE_CHECKING:
    import torch.fx

    from workers.probes.taps import Site


@torch.library.custom_op("shardproof::tap_through", mutates_args=())
def tap_through(
    carrier: torch.Tensor, residual: torch.Tensor, index: int, count: int, compile_range: list[int], scattered: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """As ``shardproof::tap``, and returns the residual as well, changed by the fault that is on."""
    site = RECORDER.site(index)
    held = residual if site is None else faults.residual(residual, site)
    first, last = compile_range
    RECORDER.record(held, index, count, (first, last), scattered)
    return carrier.clone(), held.clone()


@tap_through.register_fake
def _(
    carrier: torch.Tensor, residual: torch.Tensor, index: int, count: int, compile_range: list[int], scattered: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(carrier), torch.empty_like(residual)


def insert(graph: torch.fx.Graph, site: Site, rest: tuple[int, int, list[int], bool]) -> None:
    """Put the operation behind both, and let everybody read its results instead."""
    carrier, residual = site.carrier, site.residual
    with graph.inserting_after(max(carrier, residual)):
        node = graph.call_function(torch.ops.shardproof.tap_through.default, (carrier, residual, *rest))
    value = carrier.meta["val"]
    with value.fake_mode:
        node.meta["val"] = (torch.empty_like(value), torch.empty_like(residual.meta["val"]))
    with graph.inserting_after(node):
        outputs = [graph.call_function(operator.getitem, (node, number)) for number in (1, 0)]
    for output, source, number in zip(outputs, (residual, carrier), (1, 0), strict=True):
        output.meta["val"] = node.meta["val"][number]
        _redirect(source, output, node)


def _redirect(source: torch.fx.Node, output: torch.fx.Node, operation: torch.fx.Node) -> None:
    """Only what comes after the operation can read its result; the norm itself has read the residual before."""
    source.replace_all_uses_with(output, delete_user_cb=lambda user: user is not operation and user > operation)
