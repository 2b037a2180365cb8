"""Faults in graphs: each changes the graph as it says, in the compile range and on the rank that it names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import vllm.distributed
import vllm.ir.ops  # noqa: F401  (registers vLLM's IR)
from hypothesis import given
from hypothesis import strategies as st
from vllm.compilation.passes.inductor_pass import pass_context
from vllm.config.utils import Range

from workers.selftest import graphs
from workers.selftest.graph_faults import VARIABLE, GraphFault, from_text, to_text
from workers.selftest.graphs import GRAPH_FAULTS

all_reduce: Any = torch.ops.vllm.all_reduce.default
all_gather: Any = torch.ops.vllm.all_gather.default


class Pass:
    """In the place of vLLM's SP pass: counts how often it ran, and what it recognised."""

    def __init__(self) -> None:
        self.ran = 0
        self.patterns = SimpleNamespace(apply=lambda graph: 5)

    def __call__(self, graph: torch.fx.Graph) -> None:
        self.ran += 1
        self.matched = self.patterns.apply(graph)


def graph_of(operation: Any) -> torch.fx.Graph:
    graph = torch.fx.Graph()
    value = graph.placeholder("value")
    value.meta["val"] = torch.empty(4, 2)
    node = graph.call_function(operation, (value, *([0, 2, "tp"] if operation is all_gather else ["tp"])))
    node.meta["val"] = value.meta["val"]
    graph.output(graph.call_function(torch.ops.aten.exp.default, (node,)))
    return graph


def targets(graph: torch.fx.Graph) -> list[Any]:
    return [node.target for node in graph.nodes if node.op == "call_function"]


@given(st.lists(st.builds(GraphFault, st.text(), st.integers(), st.integers(), st.none() | st.integers())))
def test_an_engine_is_told_what_was_asked(faults: list[GraphFault]) -> None:
    assert from_text(to_text(faults)) == faults


@given(*[st.integers(1, 50) for _ in range(4)])
def test_a_fault_lies_in_the_ranges_that_hold_all_its_tokens(first: int, last: int, start: int, end: int) -> None:
    tokens, held = set(range(first, last + 1)), set(range(start, end + 1))
    if tokens:
        assert GraphFault("any", first, last).lies_in(start, end) == (tokens <= held)


def install(monkeypatch: pytest.MonkeyPatch, sp_pass: Pass, *faults: GraphFault, rank: int = 0) -> Any:
    monkeypatch.setenv(VARIABLE, to_text(list(faults)))
    monkeypatch.setattr(graphs, "get_tensor_model_parallel_rank", lambda: rank)
    manager: Any = SimpleNamespace(passes=[sp_pass])
    graphs.install(manager, sp_pass)
    return manager


def run(manager: Any, graph: torch.fx.Graph, first: int, last: int) -> torch.fx.Graph:
    with pass_context(Range(first, last)):
        for each in manager.passes:
            each(graph)
    return graph


def test_without_a_fault_there_is_no_pass_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    sp_pass = Pass()
    assert install(monkeypatch, sp_pass).passes == [sp_pass]


@pytest.mark.parametrize("kind", GRAPH_FAULTS)
def test_another_range_and_another_rank_are_left_alone(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    sp_pass = Pass()
    manager = install(monkeypatch, sp_pass, GraphFault(kind, 9, 16, rank=1), rank=0)
    untouched = targets(graph_of(all_reduce))
    assert targets(run(manager, graph_of(all_reduce), 9, 16)) == untouched
    manager = install(monkeypatch, sp_pass, GraphFault(kind, 9, 16), rank=0)
    assert targets(run(manager, graph_of(all_reduce), 1, 8)) == untouched
    assert (sp_pass.matched, sp_pass.ran) == (5, 2)


def test_something_stands_between_the_all_reduce_and_its_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = install(monkeypatch, Pass(), GraphFault("norm-not-rewritten", 1, 8))
    found = targets(run(manager, graph_of(all_reduce), 1, 8))
    negative = torch.ops.aten.neg.default
    assert found == [all_reduce, negative, negative, torch.ops.aten.exp.default]


def test_the_pass_recognises_nothing_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sp_pass = Pass()
    manager = install(monkeypatch, sp_pass, GraphFault("pass-did-nothing", 1, 8))
    run(manager, graph_of(all_reduce), 1, 8)
    assert sp_pass.matched == 0
    run(manager, graph_of(all_reduce), 9, 16)
    assert sp_pass.matched == 5


def test_the_pass_runs_below_its_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    sp_pass = Pass()
    manager = install(monkeypatch, sp_pass, GraphFault("threshold-ignored", 1, 8))
    manager.passes.remove(sp_pass)
    run(manager, graph_of(all_reduce), 1, 8)
    run(manager, graph_of(all_reduce), 9, 16)
    assert sp_pass.ran == 1


def test_another_graph_of_the_same_numbers() -> None:
    graph = graph_of(all_gather)
    GRAPH_FAULTS["another-graph"].after(graph)
    for node in list(graph.nodes):
        if node.target is all_gather:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    value = torch.randn(4, 2)
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    assert torch.equal(module(value), value.exp())
    assert targets(graph).count(torch.ops.aten.neg.default) == 2


def test_every_rank_cuts_out_the_part_of_rank_0() -> None:
    graph = torch.fx.Graph()
    value, length, twice = (graph.placeholder(name) for name in ("value", "length", "twice"))
    part = graph.call_function(torch.ops.aten.slice.Tensor, (value, 0, length, twice))
    graph.output(graph.call_function(torch.ops.vllm_ir.fused_add_rms_norm.default, (part, part, part, 1e-5)))
    GRAPH_FAULTS["cut-at-rank-0"].after(graph)
    assert part.args == (value, 0, 0, length)
