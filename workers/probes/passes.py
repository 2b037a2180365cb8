"""Our two passes in vLLM's post-grad pipeline: one counts collectives before the SP pass, one after it and taps.

The count is taken from the graph itself, not from what the pass says of itself: an all-reduce that is still there
was not rewritten. Per graph and compile range, on every rank.
"""

from __future__ import annotations

import functools
import hashlib
import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from vllm.compilation.passes.inductor_pass import InductorPass, get_pass_context

from workers import environment
from workers.engine import hooks
from workers.probes import taps

if TYPE_CHECKING:
    import torch.fx
    from vllm.compilation.passes.pass_manager import PostGradPassManager
    from vllm.config import VllmConfig

SP_PASS = "SequenceParallelismPass"


@dataclass
class GraphCensus:
    """Collectives of one compiled graph. ``applicable``: the SP pass is configured and wants this compile range.

    ``rewritable``: all-reduces before the pass whose result goes to a norm of the residual, each of which the pass
    should rewrite; the last one of a pipeline stage goes to the next stage instead. ``structure``: hash of the graph
    after the pass without its literals, equal on all ranks of a stage. ``scattered``: by site, whether the norm there
    works on a rank's part of the tokens.
    """

    compile_range: tuple[int, int]
    applicable: bool
    all_reduce_before: int
    rewritable: int = 0
    all_reduce_after: int = 0
    reduce_scatter_after: int = 0
    all_gather_after: int = 0
    claimed: int | None = None
    structure: str = ""
    scattered: list[bool] = field(default_factory=list)


_census: list[GraphCensus] = []


def census() -> list[dict[str, Any]]:
    """One entry per graph compiled in this process, in the order they were compiled."""
    return [asdict(entry) for entry in _census]


def count(graph: torch.fx.Graph, name: str) -> int:
    """How often ``torch.ops.vllm.<name>`` stands in ``graph``."""
    operation = getattr(torch.ops.vllm, name).default
    return sum(1 for _ in graph.find_nodes(op="call_function", target=operation))


def rewritable(graph: torch.fx.Graph, hidden_size: int) -> int:
    """All-reduces whose result reaches a norm of the residual before it reaches another collective."""
    operation = torch.ops.vllm.all_reduce.default
    found = graph.find_nodes(op="call_function", target=operation)
    return sum(1 for node in found if _reaches_norm(node, hidden_size))


def _reaches_norm(start: torch.fx.Node, hidden_size: int) -> bool:
    seen: set[torch.fx.Node] = set()
    queue = list(start.users)
    while queue:
        node = queue.pop()
        if node in seen or node.target == torch.ops.vllm.all_reduce.default:
            continue
        seen.add(node)
        if taps.is_residual_norm(node, hidden_size):
            return True
        queue.extend(node.users)
    return False


COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather")


def structure(graph: torch.fx.Graph, hidden_size: int) -> str:
    """Hash of what ``graph`` computes, without literals: operations, how they are connected, types of the results.

    From the first collective or norm of the residual on. Before lies the look-up in the rank's part of the vocabulary,
    of which the compiler leaves out what a rank's first token number makes superfluous. Sizes are literals too: a
    slice begins at a multiple of the rank's number.
    """
    first = {getattr(torch.ops.vllm, name).default for name in COLLECTIVES}
    numbers: dict[torch.fx.Node, int] = {}
    digest = hashlib.sha256()
    for node in graph.nodes:
        inputs = [numbers[other] for other in node.all_input_nodes if other in numbers]
        begins = node.target in first or taps.is_residual_norm(node, hidden_size)
        if (inputs or begins) and not isinstance(node.meta.get("val"), int | float | torch.SymInt | torch.SymFloat):
            numbers[node] = len(numbers)
            digest.update(f"{node.op} {_target(node)} {inputs} {_type(node.meta.get('val'))}\n".encode())
    return digest.hexdigest()[:16]


def _target(node: torch.fx.Node) -> str:
    """Names of inputs and of constants are literals."""
    return str(node.target) if node.op == "call_function" else ""


def _type(value: Any) -> str:
    if isinstance(value, list | tuple):
        return str([_type(part) for part in value])
    return f"{value.dtype} {value.dim()}" if isinstance(value, torch.Tensor) else type(value).__name__


class CountBefore(InductorPass):
    def __init__(self, sp_pass: Any | None, hidden_size: int) -> None:
        self.sp_pass = sp_pass
        self.hidden_size = hidden_size

    def __call__(self, graph: torch.fx.Graph) -> None:
        compile_range = get_pass_context().compile_range
        applicable = self.sp_pass is not None and self.sp_pass.is_applicable_for_range(compile_range)
        if self.sp_pass is not None:
            # The pass leaves its last count standing when it does not run.
            self.sp_pass.matched_count = 0
        entry = GraphCensus((compile_range.start, compile_range.end), applicable, count(graph, "all_reduce"))
        entry.rewritable = rewritable(graph, self.hidden_size)
        _census.append(entry)


class CountAfter(InductorPass):
    def __init__(self, sp_pass: Any | None, hidden_size: int) -> None:
        self.sp_pass = sp_pass
        self.hidden_size = hidden_size

    def __call__(self, graph: torch.fx.Graph) -> None:
        entry = _census[-1]
        entry.all_reduce_after = count(graph, "all_reduce")
        entry.reduce_scatter_after = count(graph, "reduce_scatter")
        entry.all_gather_after = count(graph, "all_gather")
        entry.structure = structure(graph, self.hidden_size)
        entry.scattered = [site.scattered for site in taps.residual_sites(graph, self.hidden_size)]
        if self.sp_pass is not None:
            entry.claimed = self.sp_pass.matched_count


def install(manager: PostGradPassManager, config: VllmConfig) -> None:
    """Put our passes around vLLM's in ``manager``, which has just been configured."""
    sp_pass = next((p for p in manager.passes if type(p).__name__ == SP_PASS), None)
    hidden_size = config.model_config.get_hidden_size()
    manager.passes.insert(0, CountBefore(sp_pass, hidden_size))
    if os.environ.get(environment.FAULTS) == "1" and sp_pass is not None:
        from workers.selftest import graphs

        graphs.install(manager, sp_pass)
    manager.add(CountAfter(sp_pass, hidden_size))
    if taps.wanted():
        manager.add(taps.TapPass(hidden_size))
    hooks.time_passes(manager)


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
