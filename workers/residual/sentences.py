"""A wrong place in plain words: what, where, which tokens, and what likely makes it so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workers.protocol import REPLICAS_DIFFER, Divergence, Onset
from workers.residual.taps import Step

RUNS_NAMED = 3
"""Runs of neighbouring tokens that a sentence names before it counts the rest."""

WORDS = {
    "nan": ("holds numbers that are not finite", "an overflow, or memory that was never written"),
    "zeros": ("holds zeros", "a buffer that was never filled"),
    "rounding": ("differs in its last digits alone", "the same sum added up in another order, or a digit lost"),
    "slice-of-rank-": (
        "holds the part of rank {of}",
        "a slice that does not depend on the rank, or ranks in another order",
    ),
    "stale-of-step-": ("still holds what it held in step {of}", "a buffer that was not written again"),
    "stale-of-site-": ("still holds the residual of site {of}", "what this site computes was not added"),
    "shifted-by-a-token": ("holds each token's neighbour", "an offset by one in a slice or in padding"),
    "permuted": ("holds the right tokens in another order", "a gather or scatter by the wrong index"),
    "rows-of-other-tokens": ("holds other tokens than its own", "a gather or scatter by the wrong index"),
    "doubled": ("holds twice what belongs there", "a sum over the ranks that was taken twice"),
    "halved": ("holds half of what belongs there", "an average in place of a sum"),
    "negated": ("holds the opposite of what belongs there", "a wrong sign"),
    "reduced-twice": ("has what this site adds once for every rank", "a sum over the ranks that was taken twice"),
    "averaged": ("has what this site adds divided by the ranks", "an average in place of a sum over the ranks"),
    "added-twice": ("has what this site adds two times", "an addition to the residual that was done twice"),
    "subtracted": ("has what this site adds with the opposite sign", "a wrong sign"),
    "unreduced": ("has its own share of the sum alone", "a sum over the ranks that was never taken"),
    "wrong-size": ("has the wrong size ({of})", "a graph that was rewritten in part"),
    "replicated-where-scattered": (
        "holds every token where it should hold its part",
        "a graph that the SP pass did not rewrite, or rewrote in part",
    ),
    "scattered-where-replicated": (
        "holds its part where it should hold every token",
        "a graph that was rewritten although it should not have been, or a gather that is missing",
    ),
    REPLICAS_DIFFER: (
        "has another copy of the residual than rank 0",
        "ranks that added up in different orders, or a rank that computed with other weights or inputs",
    ),
    "values": ("holds wrong numbers", "what runs right before this site"),
}
"""What is seen, and what most likely makes it, by pattern or by what a pattern begins with."""


def sentence(found: Divergence, step: Step, everywhere: bool) -> str:
    """All of ``found`` in one sentence. ``everywhere``: every rank holds the part of one."""
    what, cause = _words(found.pattern)
    who = f"rank {found.rank} {what}" + (", and so does every other rank" if everywhere else "")
    return f"site {found.site}, step {found.step}: {who}, {_which(found, step)}{_how_much(found)}; likely {cause}"


def _words(pattern: str) -> tuple[str, str]:
    stem = next((stem for stem in WORDS if pattern.startswith(stem)), "values")
    what, cause = WORDS[stem]
    return what.format(of=pattern.removeprefix(stem).lstrip(": ")), cause


def _which(found: Divergence, step: Step) -> str:
    count = f"{found.tokens} token{'s' if found.tokens != 1 else ''}"
    return f"{count} ({tokens_in_words(step, found.rows, found.tokens)})" if found.rows else count


def _how_much(found: Divergence) -> str:
    if found.score is None or found.pattern == REPLICAS_DIFFER:
        return ""
    grown = ", grown over the sites before" if found.onset is Onset.DRIFT else ""
    return f", {found.score:.3g} times the noise floor{grown}"


@dataclass
class _Run:
    """Neighbouring tokens of one request; ``request`` is ``None`` where only their number in the step is known."""

    request: int | None
    first: int
    last: int

    def __str__(self) -> str:
        of = "token" if self.request is None else f"request {self.request}, position"
        return f"{of} {self.first}" if self.first == self.last else f"{of}s {self.first} to {self.last}"


def tokens_in_words(step: Step, numbers: Sequence[int], count: int | None = None) -> str:
    """Tokens of a step, by request and position; ``count``: how many there are, if not all are in ``numbers``."""
    runs = list(_runs(step, numbers))
    named = runs[:RUNS_NAMED]
    left = (len(numbers) if count is None else count) - sum(run.last - run.first + 1 for run in named)
    return "; ".join(map(str, named)) + (f"; {left} more" if left > 0 else "")


def _runs(step: Step, numbers: Sequence[int]) -> Iterator[_Run]:
    run: _Run | None = None
    for number in sorted(numbers):
        request, place = _place(step, number)
        if run is not None and run.request == request and place == run.last + 1:
            run.last = place
            continue
        if run is not None:
            yield run
        run = _Run(request, place, place)
    if run is not None:
        yield run


def _place(step: Step, number: int) -> tuple[int | None, int]:
    """Request and position of a token of the step."""
    reached = 0
    for request, first, count in step.requests:
        if number < reached + count:
            return request, first + number - reached
        reached += count
    return None, number


def why_not_the_same(first: Divergence, wrong_steps: int, steps: int) -> str:
    """What likely makes two runs of one plan in one engine differ."""
    if first.pattern.startswith("stale-of-step-"):
        return "a buffer is read before it is written: what it holds depends on what ran before"
    if wrong_steps == steps:
        return "every step differs, so the input does: a buffer or a cache that the first run has left behind"
    if first.step:
        return (
            f"{wrong_steps} of {steps} steps differ, the first ones do not: a kernel or a collective that adds up in "
            "no fixed order, or what the first run has left in the prefix or KV cache"
        )
    return (
        f"{wrong_steps} of {steps} steps differ, here and there: a kernel or a collective that adds up in no fixed "
        "order, or a buffer that is reused"
    )
