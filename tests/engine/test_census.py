"""The census counts what is in a graph before and after vLLM's passes, whatever they say of themselves."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import vllm.distributed  # noqa: F401  (registers vLLM's collectives)
from vllm.compilation.passes.inductor_pass import pass_context
from vllm.config.utils import Range

from workers.platforms.pass_manager import CpuPassManager
from workers.probes import passes
from workers.probes.passes import CountAfter, CountBefore, census, count, rewritable, structure
from workers.probes.taps import TapPass

from .graphs import (
    EPSILON,
    HEADS,
    HIDDEN,
    WEIGHTS,
    all_gather,
    all_reduce,
    fused_add_rms_norm,
    reduce_scatter,
    rms_norm,
    trace,
)


def collectives(**numbers: int) -> torch.fx.Graph:
    """A graph with so many of each collective; nothing of it is ever run."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    rest = {"all_reduce": ("tp",), "reduce_scatter": (0, 2, "tp"), "all_gather": (0, 2, "tp")}
    for name, number in numbers.items():
        for _ in range(number):
            x = graph.create_node("call_function", getattr(torch.ops.vllm, name).default, (x, *rest[name]))
    x = graph.create_node("call_function", torch.ops.aten.relu.default, (x,))
    graph.output(x)
    return graph


ROWS = torch.randn(6, HIDDEN)


class SpPass:
    """As much of vLLM's pass as the census looks at. ``matched_count`` is left from a graph before."""

    def __init__(self, first: int = 1) -> None:
        self.first = first
        self.matched_count = 99

    def is_applicable_for_range(self, compile_range: Any) -> bool:
        return bool(compile_range.start >= self.first)


@pytest.fixture
def fresh_census(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "_census", [])


@pytest.mark.parametrize("name", ["all_reduce", "reduce_scatter", "all_gather"])
def test_count_sees_one_collective_and_no_other(name: str) -> None:
    graph = collectives(all_reduce=3, reduce_scatter=2, all_gather=1)
    assert count(graph, name) == {"all_reduce": 3, "reduce_scatter": 2, "all_gather": 1}[name]
    assert count(collectives(), name) == 0


@pytest.mark.usefixtures("fresh_census")
def test_census_has_the_graph_before_and_after_the_pass() -> None:
    sp_pass = SpPass()
    with pass_context(Range(start=1, end=64)):
        CountBefore(sp_pass, HIDDEN)(collectives(all_reduce=5))
        sp_pass.matched_count = 4
        CountAfter(sp_pass, HIDDEN)(collectives(all_reduce=1, reduce_scatter=4, all_gather=4))
    (entry,) = census()
    assert len(entry.pop("structure")) == 16
    assert entry == {
        "compile_range": (1, 64),
        "applicable": True,
        "all_reduce_before": 5,
        "rewritable": 0,
        "all_reduce_after": 1,
        "reduce_scatter_after": 4,
        "all_gather_after": 4,
        "claimed": 4,
        "scattered": [],
    }


@pytest.mark.usefixtures("fresh_census")
def test_census_has_what_the_pass_should_do_and_what_it_left() -> None:
    def before(x: torch.Tensor) -> Any:
        return all_reduce(rms_norm(all_reduce(x), WEIGHTS.norms[0], EPSILON) @ WEIGHTS.mixers[0])

    def after(x: torch.Tensor) -> Any:
        part = rms_norm(reduce_scatter(x), WEIGHTS.norms[0], EPSILON)
        return all_reduce(all_gather(part) @ WEIGHTS.mixers[0])

    written = trace(after, ROWS).graph
    with pass_context(Range(start=1, end=64)):
        CountBefore(None, HIDDEN)(trace(before, ROWS).graph)
        CountAfter(None, HIDDEN)(written)
    (entry,) = census()
    assert (entry["all_reduce_before"], entry["rewritable"], entry["scattered"]) == (2, 1, [True])
    assert entry["structure"] == structure(written, HIDDEN)


@pytest.mark.usefixtures("fresh_census")
def test_a_pass_that_does_not_run_claims_nothing_of_the_graph_before() -> None:
    sp_pass = SpPass(first=8)
    for start in (8, 1):
        with pass_context(Range(start=start, end=64)):
            CountBefore(sp_pass, HIDDEN)(collectives(all_reduce=2))
            if start == 8:
                sp_pass.matched_count = 2
            CountAfter(sp_pass, HIDDEN)(collectives(reduce_scatter=2) if start == 8 else collectives(all_reduce=2))
    assert [(entry["applicable"], entry["claimed"], entry["all_reduce_after"]) for entry in census()] == [
        (True, 2, 0),
        (False, 0, 2),
    ]


@pytest.mark.usefixtures("fresh_census")
def test_without_the_pass_nothing_is_applicable_or_claimed() -> None:
    with pass_context(Range(start=1, end=64)):
        CountBefore(None, HIDDEN)(collectives(all_reduce=2))
        CountAfter(None, HIDDEN)(collectives(all_reduce=2))
    (entry,) = census()
    assert (entry["applicable"], entry["claimed"], entry["all_reduce_before"]) == (False, None, 2)


@pytest.mark.parametrize(("taps_wanted", "last"), [("1", TapPass), ("0", CountAfter)])
def test_our_passes_stand_around_vllms(taps_wanted: str, last: type, monkeypatch: pytest.MonkeyPatch) -> None:
    SequenceParallelismPass = type("SequenceParallelismPass", (SpPass,), {})
    manager: Any = SimpleNamespace(passes=[object(), SequenceParallelismPass()], add=lambda p: manager.passes.append(p))
    config: Any = SimpleNamespace(model_config=SimpleNamespace(get_hidden_size=lambda: HIDDEN))
    monkeypatch.setenv("SHARDPROOF_TAPS", taps_wanted)
    passes.install(manager, config)
    assert isinstance(manager.passes[0], CountBefore)
    assert isinstance(manager.passes[-1], last)
    assert manager.passes[0].sp_pass is manager.passes[2]
    assert all(p.hidden_size == HIDDEN for p in (manager.passes[0], manager.passes[-1]))


def test_this_machine_uses_our_pass_manager() -> None:
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        pytest.skip("vLLM's own manager has the pass on this platform")
    assert current_platform.get_pass_manager_cls() == f"{CpuPassManager.__module__}.{CpuPassManager.__qualname__}"


def test_a_foreign_pass_manager_gets_our_passes_after_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    class Manager:
        def configure(self, config: object) -> None:
            seen.append(f"configured with {config}")

    def install(manager: object, config: object) -> None:
        seen.append(f"installed in {type(manager).__name__}")

    monkeypatch.setattr(passes, "install", install)
    passes.hook(Manager)
    Manager().configure("x")
    assert seen == ["configured with x", "installed in Manager"]


# --- which all-reduces a pass should rewrite --------------------------------------------------------------------------


def normed(x: torch.Tensor) -> Any:
    return rms_norm(x, WEIGHTS.norms[0], EPSILON)


def test_an_all_reduce_counts_where_a_norm_reads_it_at_once() -> None:
    assert rewritable(trace(lambda x: normed(all_reduce(x)), ROWS).graph, HIDDEN) == 1


def test_an_all_reduce_counts_that_reaches_its_norm_through_views_and_sums() -> None:
    def through(x: torch.Tensor) -> Any:
        return normed((all_reduce(x).view(-1, 2, HIDDEN) + 1).reshape(-1, HIDDEN) + x)

    def as_residual(x: torch.Tensor) -> Any:
        return fused_add_rms_norm(x, all_reduce(x) * 2, WEIGHTS.norms[0], EPSILON)

    assert [rewritable(trace(function, ROWS).graph, HIDDEN) for function in (through, as_residual)] == [1, 1]


def test_the_last_all_reduce_of_a_stage_reaches_no_norm_and_is_not_counted() -> None:
    def stage(x: torch.Tensor) -> Any:
        return all_reduce(normed(all_reduce(x)) @ WEIGHTS.mixers[0]) + 1

    graph = trace(stage, ROWS).graph
    assert (count(graph, "all_reduce"), rewritable(graph, HIDDEN)) == (2, 1)


def test_a_norm_behind_the_next_all_reduce_is_not_this_ones() -> None:
    graph = trace(lambda x: normed(all_reduce(all_reduce(x) + 1)), ROWS).graph
    assert (count(graph, "all_reduce"), rewritable(graph, HIDDEN)) == (2, 1)


def test_a_norm_of_heads_makes_no_all_reduce_rewritable() -> None:
    def heads(x: torch.Tensor) -> Any:
        return rms_norm(all_reduce(x).view(-1, HIDDEN // HEADS), WEIGHTS.head_norm, EPSILON)

    assert rewritable(trace(heads, ROWS).graph, HIDDEN) == 0


# --- what ranks have in common ----------------------------------------------------------------------------------------


def rank_graph(
    *, begin: int = 0, scale: float = 2.0, operation: Any = torch.relu, ahead: int = 0, dtype: Any = None
) -> torch.fx.Graph:
    """What a rank computes. Ranks differ in where their slice begins, in literals and in what lies ahead."""

    def computed(x: torch.Tensor) -> Any:
        for _ in range(ahead):
            x = torch.sigmoid(x) + begin
        whole = all_reduce(x)
        part = whole[begin : begin + 3].to(dtype)
        one, two = operation(part * scale), torch.tanh(part)
        return torch.sub(one, two) @ WEIGHTS.mixers[0].to(dtype)

    return trace(computed, ROWS).graph


def rank_structure(**differently: Any) -> str:
    return structure(rank_graph(**({"dtype": torch.float64} | differently)), HIDDEN)


@pytest.mark.parametrize(
    "other",
    [{"begin": 3}, {"scale": 4.0}, {"ahead": 1}, {"ahead": 3, "begin": 1}],
    ids=["slice bounds", "literal", "before the first collective", "all of them"],
)
def test_ranks_that_differ_in_literals_have_one_structure(other: dict[str, Any]) -> None:
    assert str(rank_graph(dtype=torch.float64, **other)) != str(rank_graph(dtype=torch.float64)), "they do differ"
    assert rank_structure(**other) == rank_structure()


@pytest.mark.parametrize(
    "other", [{"operation": torch.sigmoid}, {"dtype": torch.float16}], ids=["operation", "type of a result"]
)
def test_another_operation_or_type_is_another_structure(other: dict[str, Any]) -> None:
    assert rank_structure(**other) != rank_structure()


def test_another_connection_is_another_structure() -> None:
    def rewired(change: Callable[[Any, Any, Any], None]) -> str:
        graph = rank_graph(dtype=torch.float64)
        (sub,) = graph.find_nodes(op="call_function", target=torch.ops.aten.sub.Tensor)
        change(sub, *sub.args)
        graph.lint()
        return structure(graph, HIDDEN)

    same = rewired(lambda sub, one, two: None)
    swapped = rewired(lambda sub, one, two: setattr(sub, "args", (two, one)))
    other = rewired(lambda sub, one, two: setattr(sub, "args", (one, two.args[0])))
    assert same == rank_structure()
    assert len({same, swapped, other}) == 3


def test_one_collective_more_is_another_structure() -> None:
    one, two = (trace(function, ROWS).graph for function in (all_reduce, lambda x: all_reduce(all_reduce(x))))
    assert structure(one, HIDDEN) != structure(two, HIDDEN)


def test_structure_begins_at_a_norm_where_no_collective_comes_first() -> None:
    def stage(*, ahead: Any, after: Any) -> str:
        return structure(trace(lambda x: all_reduce(after(normed(ahead(x)))), ROWS).graph, HIDDEN)

    assert stage(ahead=torch.relu, after=torch.relu) == stage(ahead=torch.tanh, after=torch.relu)
    assert stage(ahead=torch.relu, after=torch.relu) != stage(ahead=torch.relu, after=torch.tanh)
