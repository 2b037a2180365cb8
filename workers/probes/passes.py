"""Our two passes in vLLM's post-grad pipeline: one counts collectives before the SP pass, one after it and taps.

The count is taken from the graph itself, not from what the pass says of itself: an all-reduce that is still there
was not rewritten. Per graph and compile range, on every rank.
"""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from vllm.compilation.passes.inductor_pass import InductorPass, get_pass_context

from workers.probes import taps

if TYPE_CHECKING:
    import torch.fx
    from vllm.compilation.passes.pass_manager import PostGradPassManager
    from vllm.config import VllmConfig

SP_PASS = "SequenceParallelismPass"


@dataclass
class GraphCensus:
    """Collectives of one compiled graph. ``applicable``: the SP pass is configured and wants this compile range."""

    compile_range: tuple[int, int]
    applicable: bool
    all_reduce_before: int
    all_reduce_after: int = 0
    reduce_scatter_after: int = 0
    all_gather_after: int = 0
    claimed: int | None = None


_census: list[GraphCensus] = []


def census() -> list[dict[str, Any]]:
    """One entry per graph compiled in this process, in the order they were compiled."""
    return [asdict(entry) for entry in _census]


def count(graph: torch.fx.Graph, name: str) -> int:
    """How often ``torch.ops.vllm.<name>`` stands in ``graph``."""
    operation = getattr(torch.ops.vllm, name).default
    return sum(1 for _ in graph.find_nodes(op="call_function", target=operation))


class CountBefore(InductorPass):
    def __init__(self, sp_pass: Any | None) -> None:
        self.sp_pass = sp_pass

    def __call__(self, graph: torch.fx.Graph) -> None:
        compile_range = get_pass_context().compile_range
        applicable = self.sp_pass is not None and self.sp_pass.is_applicable_for_range(compile_range)
        if self.sp_pass is not None:
            # The pass leaves its last count standing when it does not run.
            self.sp_pass.matched_count = 0
        _census.append(GraphCensus((compile_range.start, compile_range.end), applicable, count(graph, "all_reduce")))


class CountAfter(InductorPass):
    def __init__(self, sp_pass: Any | None) -> None:
        self.sp_pass = sp_pass

    def __call__(self, graph: torch.fx.Graph) -> None:
        entry = _census[-1]
        entry.all_reduce_after = count(graph, "all_reduce")
        entry.reduce_scatter_after = count(graph, "reduce_scatter")
        entry.all_gather_after = count(graph, "all_gather")
        if self.sp_pass is not None:
            entry.claimed = self.sp_pass.matched_count


def install(manager: PostGradPassManager, config: VllmConfig) -> None:
    """Put our passes around vLLM's in ``manager``, which has just been configured."""
    sp_pass = next((p for p in manager.passes if type(p).__name__ == SP_PASS), None)
    manager.passes.insert(0, CountBefore(sp_pass))
    manager.add(CountAfter(sp_pass))
    if taps.wanted():
        manager.add(taps.TapPass(config.model_config.get_hidden_size()))


def hook(manager_class: type[Any]) -> None:
    """Let every manager of ``manager_class`` be given our passes once vLLM has configured it.

    For platforms whose pass manager is vLLM's own; the CPU platform brings a manager that does this by itself.
    """
    original = manager_class.configure

    @functools.wraps(original)
    def configure(self: Any, config: VllmConfig) -> None:
        original(self, config)
        install(self, config)

    manager_class.configure = configure
