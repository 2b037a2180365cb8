"""What has to hold without any tolerance. Each invariant is a function of one recorded arm, and stands in ``CHECKS``.

An invariant that finds nothing to look at says so: ``held`` is then ``None``, never true.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from workers.protocol import ONE_ORDER, Invariant, Role, Shape
from workers.residual.boundary import crossings
from workers.residual.layout import Graph, rewritable
from workers.residual.pair import Pair
from workers.residual.question import Question, Spot
from workers.residual.rows import Rows, rows_of
from workers.residual.sentences import tokens_in_words
from workers.residual.taps import TapSet, site_name

ROUNDING_DIGITS = 64
"""A row this many last digits from its own token is in its place; one farther away is looked for elsewhere."""

UNMISTAKABLE = 10.0
"""A row belongs to another token when it is so many times nearer to that than to its own."""


@dataclass(frozen=True)
class Arm:
    """One recorded arm. ``ranks``: what each of its processes told, ``ranks`` of its ``result.json``.

    ``question``: how it is held against ``control``, which has the whole residual on rank 0; ``control`` is ``None``
    where there is none. ``fused``: collectives may have been fused into matrix products since the SP pass.
    """

    role: Role
    taps: TapSet
    ranks: list[dict[str, Any]]
    shape: Shape
    question: Question
    control: TapSet | None = None
    fused: bool = False

    @property
    def tp(self) -> int:
        return self.shape.tensor_parallel_size

    @property
    def pair(self) -> Pair:
        return Pair(self.taps, self.control or self.taps, self.question)

    def places(self) -> Iterator[Spot]:
        """Every step, site and rank of the arm, whatever the control has."""
        for step in range(len(self.taps.tokens)):
            for site in range(self.question.sites):
                for rank in range(len(self.taps.ranks)):
                    yield Spot(step, site, rank)


@dataclass
class _Tally:
    """Counts what was compared and keeps the first breach."""

    name: str
    arm: Arm
    checked: int = 0
    broken: int = 0
    first: str = ""
    remarks: list[str] = field(default_factory=list)

    def check(self, holds: bool, breach: str) -> None:
        self.checked += 1
        if not holds:
            self.broken += 1
            self.first = self.first or breach

    def done(self, nothing: str) -> Invariant:
        """``nothing``: why there was nothing to compare, if there was not."""
        held = self.broken == 0 if self.checked else None
        detail = "; ".join([f"{self.checked} compared", *self.remarks]) if held else self.first or nothing
        if self.broken > 1:
            detail += f"; {self.broken} of {self.checked} in all"
        return Invariant(name=self.name, held=held, checked=self.checked, detail=detail, arm=self.arm.role)


def _place(spot: Spot) -> str:
    return f"step {spot.step}, site {site_name(spot.site)}, rank {spot.rank}"


# --- the residual ----------------------------------------------------------------------------------------------------


def shards_complete(arm: Arm) -> Invariant:
    """The parts of a scattered residual are of one size and make up all tokens, padding included."""
    tally = _Tally("shards-complete", arm)
    pair = arm.pair
    for step in range(len(arm.taps.tokens)):
        for site in range(arm.question.sites):
            if not arm.question.scattered_at(step, site):
                continue
            kept = [arm.taps.at(rank, step, site) for rank in range(len(arm.taps.ranks))]
            sizes = [len(rows_of(rows)) if rows is not None else 0 for rows in kept]
            parts = [pair.part(Spot(step, site, rank)) for rank in range(len(sizes))]
            where = f"step {step}, site {site_name(site)}"
            wanted = sum(part.rows for part in parts)
            text = f"{where}: parts of {sizes} rows by rank where {wanted} in equal parts belong"
            tally.check(len(set(sizes)) == 1 and sum(sizes) == wanted, text)
    return tally.done("no residual is scattered here")


def token_order(arm: Arm) -> Invariant:
    """No row is that of another token, and all ranks hold the requests of a step in one order.

    A row is nearest to its own token among all of its step.
    """
    tally = _Tally("token-order", arm)
    _check_requests(arm, tally)
    if arm.control is None:
        return tally.done("no other arm to know the order from")
    pair = arm.pair
    for spot in pair.places():
        found, expected = pair.held(spot), pair.expected(spot)
        whole, mine = pair.whole(spot), pair.part(spot)
        if found is None or expected is None or whole is None or len(found) < mine.tokens:
            continue
        if not mine.tokens or not found.comparable(whole):
            continue
        moved = _moved(found.part(0, mine.tokens), expected, whole, mine.start, arm)
        own = [mine.start + row for row in moved]
        text = f"{_place(spot)}: rows of other tokens at {tokens_in_words(pair.step(spot.step), own)}"
        tally.check(not moved, text)
    return tally.done("nothing was recorded that could be compared")


def _check_requests(arm: Arm, tally: _Tally) -> None:
    for process, order in enumerate(arm.taps.orders[1:], start=1):
        for step, (held, first) in enumerate(zip(order, arm.taps.orders[0], strict=True)):
            names = [[request for request, _, _ in requests] for requests in (held, first)]
            text = f"step {step}: process {process} holds requests {names[0]} where the first one holds {names[1]}"
            if held != first:
                # One order alone proves nothing of the rows: it does not count as looked at.
                tally.check(False, text)


def _moved(found: Rows, expected: Rows, whole: Rows, start: int, arm: Arm) -> list[int]:
    """Rows of ``found`` that are unmistakably those of another token."""
    if found.equal(expected):
        return []
    held = found.hold(expected)
    digits = max(found.digits, torch.finfo(found.dtype or arm.question.dtype or torch.float32).eps)
    far = (~held.equal & held.error.isfinite() & (held.error > ROUNDING_DIGITS * digits)).nonzero().flatten()
    if not len(far):
        return []
    rows = found.take(far)
    source = rows.nearest(whole)
    there = rows.hold(whole.take(source)).error
    moved = (source != start + far) & (there * UNMISTAKABLE < held.error[far])
    return [int(row) for row in far[moved]]


def replicas_equal(arm: Arm) -> Invariant:
    """Where each rank holds every token, all hold the same bits."""
    tally = _Tally("replicas-equal", arm)
    if arm.tp > ONE_ORDER:
        return tally.done(f"{arm.tp} ranks may each add up in an order of their own")
    for spot in arm.places():
        if spot.rank == 0 or arm.question.scattered_at(spot.step, spot.site):
            continue
        first, other = arm.taps.at(0, spot.step, spot.site), arm.taps.at(spot.rank, spot.step, spot.site)
        if first is None or other is None:
            continue
        tokens = arm.taps.tokens[spot.step]
        one, copy = rows_of(first).part(0, tokens), rows_of(other).part(0, tokens)
        tally.check(_same_bits(copy, one), f"{_place(spot)}: not the copy that rank 0 holds ({_apart(copy, one)})")
    return tally.done("no rank holds a copy of another's residual")


def _same_bits(copy: Rows, one: Rows) -> bool:
    """Equal, where numbers that are none count as what they are: whether they belong there is asked elsewhere."""
    if copy.equal(one):
        return True
    both_broken = not copy.finite() and not one.finite()
    return both_broken and torch.equal(copy.numbers().nan_to_num(), one.numbers().nan_to_num())


def _apart(copy: Rows, one: Rows) -> str:
    if len(copy) != len(one) or not copy.comparable(one):
        return f"{len(copy)} rows and {len(one)}"
    wrong = int((~copy.hold(one).equal).sum())
    return f"{wrong} of {len(one)} tokens differ"


def below_threshold_replicated(arm: Arm) -> Invariant:
    """In steps of fewer tokens than the threshold of SP every rank holds all of them."""
    tally = _Tally("below-threshold-replicated", arm)
    threshold = arm.shape.sp_min_token_num
    if threshold is None:
        return tally.done("the configuration has no threshold: SP is off, or rewrites every graph")
    pair = arm.pair
    for spot in arm.places():
        step = pair.step(spot.step)
        kept = arm.taps.at(spot.rank, spot.step, spot.site)
        if step.padded < threshold and kept is not None:
            rows = len(rows_of(kept))
            text = f"{_place(spot)}: {rows} rows of {step.padded} tokens, below the threshold of {threshold}"
            tally.check(rows >= step.padded, text)
    return tally.done(f"no step has fewer tokens than the threshold, {threshold}")


# --- activations and weights -----------------------------------------------------------------------------------------


def gathered_equal(arm: Arm) -> Invariant:
    """What a norm hands to the layers, gathered from the parts or summed on each rank, is the same on every rank."""
    tally = _Tally("gathered-equal", arm)
    if not arm.taps.gathered or not any(arm.taps.gathered):
        return tally.done("no gathered activation was recorded")
    first, *others = arm.taps.gathered
    for rank, other in enumerate(others, start=1):
        for key in sorted({*first, *other}, key=_by_number):
            step = int(key.split("/")[0])
            if not _owed(arm, step):
                continue
            tally.check(*_same_gather(arm, step, key, rank))
    return tally.done("nothing was gathered here that has to be equal to the bit")


def _by_number(key: str) -> list[int]:
    return [int(part) for part in key.split("/")]


def _owed(arm: Arm, step: int) -> bool:
    """A gather copies; a sum has one order on two ranks alone."""
    scattered = any(arm.question.scattered_at(step, site) for site in range(arm.question.sites))
    return scattered or arm.tp <= ONE_ORDER


def _same_gather(arm: Arm, step: int, key: str, rank: int) -> tuple[bool, str]:
    tokens = arm.taps.tokens[step]
    one, copy = (arm.taps.gathered[place].get(key) for place in (0, rank))
    where = f"step {step}, gather {key.split('/')[-1]}"
    if one is None or copy is None:
        return False, f"{where}: rank {0 if one is None else rank} did not take part"
    one, copy = one[:tokens], copy[:tokens]
    if len(one) != len(copy):
        return False, f"{where}: {len(one)} rows on rank 0, {len(copy)} on rank {rank}"
    wrong = (one != copy).nonzero().flatten().tolist()
    tokens_wrong = tokens_in_words(arm.pair.step(step), wrong) if wrong else ""
    return not wrong, f"{where}: rank {rank} has other rows than rank 0 ({tokens_wrong})"


def norm_weights_equal(arm: Arm) -> Invariant:
    """Every rank of a pipeline stage has the same weights in its norms."""
    tally = _Tally("norm-weights-equal", arm)
    for stage, ranks in _stages(arm):
        first, *others = [rank.get("norms") or {} for rank in ranks]
        for number, norms in enumerate(others, start=1):
            for name in sorted({*first, *norms}):
                text = f"{name} on rank {number}{_in_stage(arm, stage)}: not the weights that rank 0 has"
                tally.check(first.get(name) == norms.get(name), text)
    return tally.done("no weights were told, or one rank holds them all")


def _stages(arm: Arm) -> list[tuple[int, list[dict[str, Any]]]]:
    """What the ranks of each pipeline stage told; ranks are counted stage by stage."""
    ordered = sorted(arm.ranks, key=lambda rank: int(rank["rank"]))
    return [(stage, ordered[first : first + arm.tp]) for stage, first in enumerate(range(0, len(ordered), arm.tp))]


def _in_stage(arm: Arm, stage: int) -> str:
    return f" of stage {stage}" if arm.shape.pipeline_parallel_size > 1 else ""


# --- graphs ----------------------------------------------------------------------------------------------------------


def runner_belief(arm: Arm) -> Invariant:
    """The runner takes the residual for scattered in the steps in which it is.

    What it believes decides what crosses between pipeline stages. In one stage nobody acts on it, and vLLM's runner
    knows of no threshold: a residual that it takes for scattered and that is whole is a remark there.
    """
    tally = _Tally("runner-belief", arm)
    harmless = 0
    for number, step in enumerate(arm.taps.steps):
        recorded = _recorded_scattered(arm, number)
        if step.believed is None or recorded is None or arm.tp == 1:
            continue
        unread = arm.shape.pipeline_parallel_size == 1 and step.believed and not recorded
        harmless += unread
        took, is_so = (("scattered" if flag else "whole") for flag in (step.believed, recorded))
        text = f"step {number} ({step.tokens} tokens): the runner takes the residual for {took} and it is {is_so}"
        tally.check(unread or step.believed is recorded, text)
    if harmless:
        tally.remarks.append(
            f"in {harmless} steps it takes for scattered what is whole: with one stage nobody acts on it"
        )
    return tally.done("the runner was not asked, or nothing was recorded")


def _recorded_scattered(arm: Arm, step: int) -> bool | None:
    """By the rows that rank 0 holds at the last site; ``None`` where they are none, or neither a part nor the whole."""
    kept = arm.taps.at(0, step, arm.question.sites - 1)
    rows, padded = 0 if kept is None else len(rows_of(kept)), arm.taps.steps[step].padded
    if rows and rows * arm.tp == padded:
        return True
    return False if rows >= arm.taps.tokens[step] > 0 else None


def graphs_equal(arm: Arm) -> Invariant:
    """All ranks of a stage compiled the same graphs, but for literals."""
    tally = _Tally("graphs-equal", arm)
    for stage, ranks in _stages(arm):
        first, *others = [_structures(rank["census"]) for rank in ranks]
        for number, graphs in enumerate(others, start=1):
            for span in sorted({*first, *graphs}):
                text = (
                    f"tokens {span[0]} to {span[1]}{_in_stage(arm, stage)}: rank {number} compiled "
                    f"{graphs.get(span)} where rank 0 compiled {first.get(span)}"
                )
                tally.check(first.get(span) == graphs.get(span), text)
    return tally.done("no graph was compiled here on more than one rank")


def _structures(census: Sequence[Graph]) -> dict[tuple[int, int], list[str]]:
    found: dict[tuple[int, int], list[str]] = {}
    for graph in census:
        if graph.get("structure"):
            first, last = graph["compile_range"]
            found.setdefault((first, last), []).append(graph["structure"])
    return found


def collectives(arm: Arm) -> Invariant:
    """In each graph every all-reduce that should be rewritten is: a reduce-scatter and a gather, as the pass says."""
    tally = _Tally("collectives", arm)
    for rank in sorted(arm.ranks, key=lambda rank: int(rank["rank"])):
        seen: Counter[tuple[int, int]] = Counter()
        for graph in rank["census"]:
            first, last = graph["compile_range"]
            name = f"rank {rank['rank']}, tokens {first} to {last}, graph {seen[first, last]}"
            seen[first, last] += 1
            tally.check(*_collectives_of(graph, name, arm.fused))
    return tally.done("no graph was compiled here")


def _collectives_of(graph: Graph, name: str, fused: bool) -> tuple[bool, str]:
    before, after = graph["all_reduce_before"], graph["all_reduce_after"]
    scatters, gathers, claimed = graph["reduce_scatter_after"], graph["all_gather_after"], graph.get("claimed")
    wanted, gone = rewritable(graph), before - after
    paired = max(scatters, gathers) <= gone if fused else scatters == gathers == gone
    agreed = claimed is None or claimed == gone
    text = (
        f"{name}: {before} all-reduces before the pass, {wanted} of them to be rewritten, {after} after it; "
        f"{scatters} reduce-scatters, {gathers} gathers; the pass claims {claimed}"
    )
    return gone == wanted and paired and agreed, text


# --- pipeline stages -------------------------------------------------------------------------------------------------


def boundary(arm: Arm) -> Invariant:
    """What a stage sends is what the next one is given, and is what the arm compared with has there."""
    tally = _Tally("boundary", arm)
    if arm.shape.pipeline_parallel_size == 1:
        return tally.done("one pipeline stage: nothing crosses")
    for holds, text in crossings(arm):
        tally.check(holds, text)
    return tally.done("what crossed between stages was not recorded")


Check = Callable[[Arm], Invariant]

CHECKS: dict[str, Check] = {
    "shards-complete": shards_complete,
    "token-order": token_order,
    "replicas-equal": replicas_equal,
    "below-threshold-replicated": below_threshold_replicated,
    "gathered-equal": gathered_equal,
    "norm-weights-equal": norm_weights_equal,
    "runner-belief": runner_belief,
    "graphs-equal": graphs_equal,
    "collectives": collectives,
    "boundary": boundary,
}
"""By name, in the order in which they are reported. Whoever leaves one out sees what it alone would have found."""


def invariants(arm: Arm) -> list[Invariant]:
    return [check(arm) for check in CHECKS.values()]
