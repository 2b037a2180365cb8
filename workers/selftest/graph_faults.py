"""Faults that live in a compiled graph, as an engine is told of them.

They cannot be switched while it runs. vLLM compiles a graph for each range of batch sizes, so that one engine carries
as many faults as it has ranges: each range's graph has one of its own, and a batch of the right size runs it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

VARIABLE = "SHARDPROOF_GRAPH_FAULTS"


@dataclass(frozen=True)
class GraphFault:
    """``first`` and ``last``: of the tokens it is meant for. ``rank``: the TP rank, ``None`` for all."""

    kind: str
    first: int
    last: int
    rank: int | None = None

    def lies_in(self, start: int, end: int) -> bool:
        """Whether the graph of the compile range from ``start`` to ``end`` has it."""
        return start <= self.first and self.last <= end


def to_text(faults: list[GraphFault]) -> str:
    return json.dumps([asdict(fault) for fault in faults])


def from_text(text: str) -> list[GraphFault]:
    return [GraphFault(**fault) for fault in json.loads(text)]
