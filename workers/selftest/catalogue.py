"""Which faults are tried, in which engine, and where each has to be found."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from workers.protocol import ROUNDING, BatchPlan, Fault
from workers.selftest.faults import COLLECTIVE_FAULTS, RESIDUAL_FAULTS

RANKS = 2
LAYERS = 2
SITES = 2 * LAYERS + 1

RESIDUAL = "residual"
"""The comparison with the replicated arm, beside the invariants' names."""

SP, REPLICATED, PIPELINE, UNGUARDED = "sp", "replicated", "pipeline", "unguarded"
"""The engines: SP; SP off, for what is right; SP over two pipeline stages; SP on a graph cut in pieces, with its guards
taken away."""

Span = tuple[int, int]
"""First and last number of tokens of a compile range."""

THRESHOLD = 8
"""``sp_min_token_num``: steps of decoding lie below it."""

BELOW: Span = (1, 4)
AT_THE_THRESHOLD: Span = (5, THRESHOLD - 1)
CLEAN: Span = (THRESHOLD, 200)
"""Compile ranges. Batches of 5 to 7 tokens are kept for a fault that lives below the threshold."""

RIGHT_GRAPHS = (BELOW, CLEAN)

NO_GRAPHS: tuple[Span, ...] = ((0, 0),)
"""As in an engine that loaded its graphs from a cache: none was compiled there, and none can be looked at."""

WRONG_ON_OTHER_RANKS = {"slice-of-rank-0": 1, "slice-of-last-rank": 0, "ranks-rotated": 0}
"""Faults all ranks commit at once, and the first rank on which that is wrong."""

FAULT_PLAN, PREFILL_PLAN = "fault-plan", "prefill-plan"

GUARD_REMOVED, NATIVE_BELIEF = "guard-removed", "threshold-and-stages"
"""Faults that are there as soon as an engine is asked for: nothing is switched on."""


@dataclass(frozen=True)
class Entry:
    """A fault, and what has to find it.

    ``check``: the residual comparison, then at ``site`` on any of ``ranks``; or an invariant. ``plan``: the batches
    that are run with it. ``graphs``: the compile ranges whose graphs are looked at. ``compiled``: the compile range in
    whose graph the fault lives. ``left_out``: so many last steps are not compared, as after a tie in which two arms
    parted; the invariants look at them all the same.
    """

    engine: str
    fault: Fault
    check: str
    site: int | None = None
    ranks: frozenset[int] = frozenset(range(RANKS))
    plan: str = FAULT_PLAN
    graphs: tuple[Span, ...] = RIGHT_GRAPHS
    compiled: Span | None = None
    left_out: int = 0

    @property
    def switched(self) -> bool:
        """It is switched on in the running engine; else it is there from the start."""
        return self.compiled is None and self.fault.kind not in (GUARD_REMOVED, NATIVE_BELIEF)

    @property
    def name(self) -> str:
        place = "all" if self.fault.site is None else self.fault.site
        rank = "all" if self.fault.rank is None else self.fault.rank
        loaded = "-loaded" if self.graphs == NO_GRAPHS else ""
        return f"{self.fault.kind}-site-{place}-rank-{rank}-{self.plan}{loaded}"


def catalogue(quick: bool) -> list[Entry]:
    """Every kind at every site and rank; ``quick``: once every kind that two engines on two ranks can show."""
    entries = [*_residual(), *_reductions(), *_gathers(), *_replicas(), *_elsewhere(), *_recordings(), *_compiled()]
    if not quick:
        return [*entries, *_pipeline(), *_unguarded()]
    draw = random.Random(0)
    by_kind: dict[str, list[Entry]] = {}
    for entry in entries:
        by_kind.setdefault(entry.fault.kind, []).append(entry)
    return [draw.choice(found) for found in by_kind.values()]


# --- in the residual and in collectives ---------------------------------------------------------------------------


IN_EVERY_STEP = ("one-ulp", "zero-buffer")
"""Kinds that are also tried where steps below the threshold follow. There each rank holds all tokens, and copies that
differ give a fault away; where parts are held, only a comparison can."""


def _residual() -> Iterator[Entry]:
    for kind in RESIDUAL_FAULTS:
        for site in range(SITES):
            yield from _residual_at(kind, site, PREFILL_PLAN)
            if kind in IN_EVERY_STEP:
                yield from _residual_at(kind, site, FAULT_PLAN)


def _residual_at(kind: str, site: int, plan: str) -> Iterator[Entry]:
    if kind in WRONG_ON_OTHER_RANKS:
        found_on = frozenset({WRONG_ON_OTHER_RANKS[kind]})
        yield Entry(SP, Fault(kind=kind, site=site), RESIDUAL, site, found_on, plan)
        return
    for rank in range(RANKS):
        yield Entry(SP, Fault(kind=kind, site=site, rank=rank), RESIDUAL, site, frozenset({rank}), plan)


def _reductions() -> Iterator[Entry]:
    """The n-th reduction makes the n-th site."""
    for kind in COLLECTIVE_FAULTS["reduce_scatter"]:
        for call in range(SITES):
            for rank in range(RANKS):
                yield Entry(SP, Fault(kind=kind, site=call, rank=rank), RESIDUAL, call, frozenset({rank}))


def _gathers() -> Iterator[Entry]:
    """What one rank computes from a wrong gather is summed into every rank's part of the next site.

    The last gather feeds the logits alone and leaves no residual behind it.
    """
    for kind in COLLECTIVE_FAULTS["all_gather"]:
        for call in range(SITES):
            for rank in range(RANKS):
                fault = Fault(kind=kind, site=call, rank=rank)
                last = call == SITES - 1
                yield Entry(SP, fault, "gathered-equal") if last else Entry(SP, fault, RESIDUAL, call + 1)


def _replicas() -> Iterator[Entry]:
    """In the arm that says what is right. Nobody computes with the last site but the logits."""
    yield Entry(REPLICATED, Fault(kind="reduced-in-place"), RESIDUAL, 0)
    for kind in ("one-ulp", "zero-buffer"):
        yield Entry(REPLICATED, Fault(kind=kind, site=SITES - 1, rank=1), "replicas-equal")


def _elsewhere() -> Iterator[Entry]:
    """Weights, and what the runner believes. After the last norm there is no residual any more."""
    for rank in range(RANKS):
        for site in range(SITES - 1):
            yield Entry(SP, Fault(kind="norm-weight", site=site, rank=rank), RESIDUAL, site + 1)
        yield Entry(SP, Fault(kind="norm-weight", site=SITES - 1, rank=rank), "norm-weights-equal")
    yield Entry(SP, Fault(kind="belief-inverted"), "runner-belief")


def _recordings() -> Iterator[Entry]:
    """A checker that is given too little, or something else, must not say that all is well."""
    for rank in range(RANKS):
        yield Entry(SP, Fault(kind="nothing-written", rank=rank), RESIDUAL)
        yield Entry(SP, Fault(kind="step-left-out", rank=rank), RESIDUAL)
        yield Entry(SP, Fault(kind="tokens-permuted", rank=rank), RESIDUAL, 0, frozenset({rank}))
        for site in (0, SITES - 1):
            yield Entry(SP, Fault(kind="site-left-out", site=site, rank=rank), RESIDUAL)
            yield Entry(SP, Fault(kind="row-left-out", site=site, rank=rank), RESIDUAL, site, frozenset({rank}))
            yield Entry(SP, Fault(kind="row-too-many", site=site, rank=rank), RESIDUAL, site, frozenset({rank}))
        late = Fault(kind="row-too-many-at-last", site=0, rank=rank)
        yield Entry(SP, late, "shards-complete", plan=PREFILL_PLAN, left_out=1)
    yield Entry(SP, Fault(kind="step-left-out"), RESIDUAL)
    yield Entry(SP, Fault(kind="requests-reordered", rank=1), "token-order")


# --- in compiled graphs -------------------------------------------------------------------------------------------

WIDTH = 8
FIRST_SPECIAL = CLEAN[1] + 1
SPECIAL = [(FIRST_SPECIAL + WIDTH * n, FIRST_SPECIAL + WIDTH * (n + 1) - 1) for n in range(5)]
LAST_TOKEN = SPECIAL[-1][1]
"""Largest batch. The last range is the one that the engine's own warm-up runs."""


def _compiled() -> Iterator[Entry]:
    ignored = _in_graph("threshold-ignored", AT_THE_THRESHOLD, "below-threshold-replicated")
    yield from (ignored, replace(ignored, graphs=NO_GRAPHS))
    yield _in_graph("cut-at-rank-0", SPECIAL[0], RESIDUAL, 1, frozenset({1}))
    yield _in_graph("pass-did-nothing", SPECIAL[1], "collectives")
    yield _in_graph("another-graph", SPECIAL[2], "graphs-equal", rank=1)
    # Ranks that call different collectives would wait for each other for ever: compiled, and not run.
    never_run = _in_graph("pass-did-nothing", SPECIAL[3], "graphs-equal", rank=1)
    yield replace(never_run, plan=FAULT_PLAN, graphs=(*RIGHT_GRAPHS, SPECIAL[3]))
    yield _in_graph("norm-not-rewritten", SPECIAL[4], "collectives")


def _in_graph(
    kind: str,
    span: Span,
    check: str,
    site: int | None = None,
    ranks: frozenset[int] = frozenset(range(RANKS)),
    rank: int | None = None,
) -> Entry:
    return Entry(SP, Fault(kind=kind, rank=rank), check, site, ranks, plan_of(span), (span,), span)


# --- in engines of their own --------------------------------------------------------------------------------------

BOUNDARY_SITE = 2
"""The first site of the second of two stages."""


def _pipeline() -> Iterator[Entry]:
    for kind in ("boundary-changed", "boundary-parts-exchanged", "boundary-stale"):
        for rank in range(RANKS):
            fault = Fault(kind=kind, rank=rank)
            yield Entry(PIPELINE, fault, RESIDUAL, BOUNDARY_SITE, plan=PREFILL_PLAN, graphs=())
    for rank in range(RANKS):
        fault = Fault(kind="boundary-tensors-exchanged", rank=rank)
        yield Entry(PIPELINE, fault, "boundary", plan=PREFILL_PLAN, graphs=())
    # vLLM's own: its runner knows of no threshold, and gathers parts of a residual that is whole.
    yield Entry(PIPELINE, Fault(kind=NATIVE_BELIEF), RESIDUAL, BOUNDARY_SITE, graphs=())


def _unguarded() -> Iterator[Entry]:
    yield Entry(UNGUARDED, Fault(kind=GUARD_REMOVED), RESIDUAL, graphs=())


# --- batch plans --------------------------------------------------------------------------------------------------


def fault_plan() -> BatchPlan:
    """Few steps, of sizes that leave no rank without tokens and one with a padded row."""
    return BatchPlan(seed=7, max_tokens=2, waves=[[5, 8], [16], [3, 4, 7]])


def prefill_plan() -> BatchPlan:
    """The same, without the steps below the threshold."""
    return fault_plan().model_copy(update={"max_tokens": 1})


def plan_of(span: Span) -> str:
    return f"tokens-{span[0]}-{span[1]}"


def span_plan(span: Span) -> BatchPlan:
    """Two steps whose number of tokens lies in ``span``, padding included: one request, and two."""
    first, last = span[0], span[1] - span[1] % RANKS
    return BatchPlan(seed=first, max_tokens=1, waves=[[first], [last - 2, 2]])


def plans() -> dict[str, BatchPlan]:
    """What has to be known to be right, by name."""
    spans = {plan_of(entry.compiled): span_plan(entry.compiled) for entry in _compiled() if entry.compiled}
    return {FAULT_PLAN: fault_plan(), PREFILL_PLAN: prefill_plan()} | spans


# --- healthy runs -------------------------------------------------------------------------------------------------

HEALTHY = 30
HEALTHY_QUICK = 6
NOISE_SEEDS = (1, 2, 3, 4)
"""Of the rounding errors by which the noise floor is measured."""


@dataclass(frozen=True)
class Healthy:
    """A run in which nothing is wrong. ``noise``: with a rounding error drawn from this seed, where one may differ."""

    name: str
    plan: str
    engine: str = SP
    noise: int | None = None


def healthy(quick: bool) -> tuple[list[Healthy], dict[str, BatchPlan]]:
    """The healthy runs, and their batch plans by name."""
    noisy = [Healthy(f"healthy-noise-{seed}", FAULT_PLAN, noise=seed) for seed in ((11,) if quick else (11, 12, 13))]
    runs = noisy if quick else [*noisy, Healthy("healthy-stages", PREFILL_PLAN, PIPELINE)]
    drawn = healthy_plans((HEALTHY_QUICK if quick else HEALTHY) - len(runs))
    named = {f"healthy-{number}": plan for number, plan in enumerate(drawn)}
    return [*runs, *(Healthy(name, name) for name in named)], named


def healthy_plans(count: int) -> list[BatchPlan]:
    """Batch plans of different seeds and sizes.

    Among them one token, odd numbers, more requests than ranks, steps below the threshold of SP, and requests that come
    while others are answered.
    """
    draw = random.Random(1)
    drawn = []
    for seed in range(count):
        waves = [_wave(draw) for _ in range(draw.randint(1, 3))]
        late = [[draw.randint(THRESHOLD, 30) for _ in range(3)]] if seed % 3 == 0 else []
        first = [1 + seed % (RANKS + 2)]
        drawn.append(BatchPlan(seed=seed, max_tokens=draw.randint(1, 4), waves=[first, *waves], staggered=late))
    return drawn


def _wave(draw: random.Random) -> list[int]:
    """A wave outside of the range that is kept for a fault."""
    while True:
        wave = [draw.randint(1, 40) for _ in range(draw.randint(1, 4))]
        if not AT_THE_THRESHOLD[0] <= sum(wave) < THRESHOLD - 1:
            return wave


def rounding(seed: int) -> Fault:
    return Fault(kind=ROUNDING, seed=seed)
