"""The passes that put faults into graphs as they are compiled."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from vllm.compilation.passes.inductor_pass import InductorPass, get_pass_context
from vllm.distributed import get_tensor_model_parallel_rank

from workers.selftest.graph_faults import VARIABLE, GraphFault, from_text

if TYPE_CHECKING:
    import torch.fx
    from vllm.compilation.passes.pass_manager import PostGradPassManager

Undo = Callable[[], None]


@dataclass(frozen=True)
class Change:
    """What happens to the graph before vLLM's SP pass, and after it. ``before`` may also change the pass itself."""

    before: Callable[[torch.fx.Graph, Any], Undo] = lambda graph, sp_pass: lambda: None
    after: Callable[[torch.fx.Graph], None] = lambda graph: None


def _negate_twice(node: torch.fx.Node) -> None:
    """Whoever read ``node`` reads minus minus it: the same numbers, from another graph."""
    once = _negative(node)
    twice = _negative(once)
    node.replace_all_uses_with(twice, delete_user_cb=lambda user: user is not once)


def _negative(node: torch.fx.Node) -> torch.fx.Node:
    with node.graph.inserting_after(node):
        negative = node.graph.call_function(torch.ops.aten.neg.default, (node,))
    negative.meta["val"] = node.meta["val"]
    return negative


def _hide_first(graph: torch.fx.Graph, sp_pass: Any) -> Undo:
    """The pass does not recognise the first norm: something stands between it and its all-reduce."""
    found = graph.find_nodes(op="call_function", target=torch.ops.vllm.all_reduce.default)
    _negate_twice(next(iter(found)))
    return lambda: None


def _slice_of_rank_0(graph: torch.fx.Graph) -> None:
    """Each rank goes on with rank 0's part where the pass cuts the whole residual. Of two ranks: the second's start is
    the length of a part."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.slice.Tensor):
        source, dim, start, _ = node.args[:4]
        cuts = any(user.target == torch.ops.vllm_ir.fused_add_rms_norm.default for user in node.users)
        if cuts and start != 0:
            node.args = (source, dim, 0, start)


def _no_patterns(graph: torch.fx.Graph, sp_pass: Any) -> Undo:
    """The pass runs and recognises nothing."""
    return _replaced(sp_pass, "patterns", SimpleNamespace(apply=lambda graph: 0))


def _replaced(owner: Any, name: str, value: Any) -> Undo:
    right = getattr(owner, name)
    setattr(owner, name, value)
    return lambda: setattr(owner, name, right)


def _run_all_the_same(graph: torch.fx.Graph, sp_pass: Any) -> Undo:
    """The pass rewrites a range that it does not want."""
    sp_pass(graph)
    return lambda: None


def _another_graph(graph: torch.fx.Graph) -> None:
    found = list(graph.find_nodes(op="call_function", target=torch.ops.vllm.all_gather.default))
    _negate_twice(found[-1])


GRAPH_FAULTS: dict[str, Change] = {
    "norm-not-rewritten": Change(before=_hide_first),
    "cut-at-rank-0": Change(before=_hide_first, after=_slice_of_rank_0),
    "pass-did-nothing": Change(before=_no_patterns),
    "threshold-ignored": Change(before=_run_all_the_same),
    "another-graph": Change(after=_another_graph),
}


class _Begin(InductorPass):
    """Runs right before the SP pass, whether that wants the range or not."""

    def __init__(self, sp_pass: Any, faults: list[GraphFault]) -> None:
        self.sp_pass = sp_pass
        self.faults = faults
        self.undo: Undo | None = None

    def current(self) -> Change | None:
        compile_range, rank = get_pass_context().compile_range, get_tensor_model_parallel_rank()
        for fault in self.faults:
            if fault.lies_in(compile_range.start, compile_range.end) and fault.rank in (rank, None):
                return GRAPH_FAULTS[fault.kind]
        return None

    def __call__(self, graph: torch.fx.Graph) -> None:
        change = self.current()
        self.undo = None if change is None else change.before(graph, self.sp_pass)


class _End(InductorPass):
    def __init__(self, begin: _Begin) -> None:
        self.begin = begin

    def __call__(self, graph: torch.fx.Graph) -> None:
        change = self.begin.current()
        if change is not None:
            change.after(graph)
        if self.begin.undo is not None:
            self.begin.undo()


def install(manager: PostGradPassManager, sp_pass: Any) -> None:
    """Put the faults that the environment names around ``sp_pass``; without any, nothing."""
    faults = from_text(os.environ.get(VARIABLE, "[]"))
    if not faults:
        return
    begin = _Begin(sp_pass, faults)
    manager.passes.insert(manager.passes.index(sp_pass), begin)
    manager.passes.insert(manager.passes.index(sp_pass) + 1, _End(begin))
