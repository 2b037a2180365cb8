"""Which faults are tried, where, and where each has to be found."""

from __future__ import annotations

import random
from dataclasses import dataclass

from workers.protocol import BatchPlan, Fault
from workers.selftest.faults import COLLECTIVE_FAULTS, RESIDUAL_FAULTS

RANKS = 2
LAYERS = 2
SITES = 2 * LAYERS + 1

HEALTHY = 30
HEALTHY_QUICK = 5
"""Healthy runs, each with a batch plan of its own."""

WRONG_ON_OTHER_RANKS = {"slice-of-rank-0": 1, "slice-of-last-rank": 0, "ranks-rotated": 0}
"""Faults all ranks commit at once, and the first rank on which that is wrong."""


@dataclass(frozen=True)
class Entry:
    """A fault, and the sites and ranks any of which is the right place to find it at first."""

    fault: Fault
    site: int
    ranks: frozenset[int]

    @property
    def name(self) -> str:
        return f"{self.fault.kind}-site{self.fault.site}-rank{'all' if self.fault.rank is None else self.fault.rank}"


def catalogue(quick: bool) -> list[Entry]:
    """Every kind at every site and rank; ``quick``: every kind once."""
    entries = [*_residual(), *_reductions(), *_gathers()]
    if not quick:
        return entries
    draw = random.Random(0)
    by_kind: dict[str, list[Entry]] = {}
    for entry in entries:
        by_kind.setdefault(entry.fault.kind, []).append(entry)
    return [draw.choice(found) for found in by_kind.values()]


def _residual() -> list[Entry]:
    entries = []
    for kind in RESIDUAL_FAULTS:
        for site in range(SITES):
            if kind in WRONG_ON_OTHER_RANKS:
                found_on = frozenset({WRONG_ON_OTHER_RANKS[kind]})
                entries.append(Entry(Fault(kind=kind, site=site), site, found_on))
                continue
            for rank in range(RANKS):
                entries.append(Entry(Fault(kind=kind, site=site, rank=rank, seed=site), site, frozenset({rank})))
    return entries


def _reductions() -> list[Entry]:
    """The n-th reduction makes the n-th site."""
    return [
        Entry(Fault(kind=kind, site=call, rank=rank), call, frozenset({rank}))
        for kind in COLLECTIVE_FAULTS["reduce_scatter"]
        for call in range(SITES)
        for rank in range(RANKS)
    ]


def _gathers() -> list[Entry]:
    """What one rank computes from a wrong gather is summed into every rank's part of the next site.

    The last gather feeds the logits alone and leaves no residual behind it.
    """
    return [
        Entry(Fault(kind=kind, site=call, rank=rank), call + 1, frozenset(range(RANKS)))
        for kind in COLLECTIVE_FAULTS["all_gather"]
        for call in range(SITES - 1)
        for rank in range(RANKS)
    ]


def healthy_plans(count: int) -> list[BatchPlan]:
    """Batch plans of different seeds and sizes, among them one token, odd numbers, and more requests than ranks."""
    draw = random.Random(1)
    plans = []
    for seed in range(count):
        waves = [[draw.randint(1, 40) for _ in range(draw.randint(1, 4))] for _ in range(draw.randint(1, 3))]
        plans.append(BatchPlan(seed=seed, max_tokens=draw.randint(1, 4), waves=[[1 + seed % (RANKS + 2)], *waves]))
    return plans


def fault_plan() -> BatchPlan:
    """Few steps, of sizes that leave no rank without tokens and one with a padded row."""
    return BatchPlan(seed=7, max_tokens=2, waves=[[5, 8], [16], [3, 4, 7]])
