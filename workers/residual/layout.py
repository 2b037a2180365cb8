"""Where under SP a rank holds a part of the residual, and where all of it: what the graphs say that ran there.

SP rewrites the graphs of some ranges of tokens only. What a step's graph left is told by the step itself, site by site,
where it was recorded; else by the census of the graphs that were compiled; else by the threshold of the configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workers.protocol import Shape
from workers.residual.question import Place
from workers.residual.taps import Step

Graph = dict[str, Any]
"""One compiled graph on one rank, see ``workers.probes.passes.GraphCensus``."""


def whole_places(shape: Shape, steps: Sequence[Step], censuses: Sequence[list[Graph]], sites: int) -> frozenset[Place]:
    """Steps and sites at which each rank should hold every token although SP is on.

    ``censuses``: of one rank of each pipeline stage.
    """
    return frozenset(
        (number, site)
        for number, step in enumerate(steps)
        for site, scattered in enumerate(_by_site(shape, step, censuses, sites))
        if not scattered
    )


def _by_site(shape: Shape, step: Step, censuses: Sequence[list[Graph]], sites: int) -> list[bool]:
    """Whether the residual is scattered at each site of ``step``."""
    told = [flag for graphs in censuses for graph in graphs_of(step, graphs) for flag in graph.get("scattered", [])]
    if len(told) != sites:
        told = [_rewritten_for(shape, step, censuses)] * sites
    return [step.scattered.get(site, flag) for site, flag in enumerate(told)]


def _rewritten_for(shape: Shape, step: Step, censuses: Sequence[list[Graph]]) -> bool:
    ran = [graph for graphs in censuses for graph in graphs_of(step, graphs)]
    if ran:
        return any(rewritten(graph) > 0 for graph in ran)
    return step.padded >= (shape.sp_min_token_num or 0)


def graphs_of(step: Step, graphs: Sequence[Graph]) -> list[Graph]:
    """Those of ``graphs`` that run for as many tokens as ``step`` has: of the narrowest range that takes them."""
    fitting = [graph for graph in graphs if graph["compile_range"][0] <= step.padded <= graph["compile_range"][1]]
    narrowest = min((_width(graph) for graph in fitting), default=None)
    return [graph for graph in fitting if _width(graph) == narrowest]


def _width(graph: Graph) -> int:
    first, last = graph["compile_range"]
    return int(last - first)


def rewritten(graph: Graph) -> int:
    """All-reduces that the SP pass made a reduce-scatter; those that were fused into a product since count too."""
    if graph["reduce_scatter_after"] or not graph["applicable"]:
        return int(graph["reduce_scatter_after"])
    claimed: int = graph.get("claimed") or 0
    return min(claimed, int(graph["all_reduce_before"] - graph["all_reduce_after"]))


def rewritable(graph: Graph) -> int:
    """All-reduces of ``graph`` that the pass should rewrite: those whose sum goes to a norm of the residual."""
    if not graph["applicable"]:
        return 0
    return int(graph["rewritable"] if "rewritable" in graph else graph["all_reduce_before"])
