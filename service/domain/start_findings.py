"""What a warm start owes: it loads what the cold one saved, saves and compiles nothing, and answers the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from service.domain.case import Reason
from service.domain.verdict import Verdict
from service.domain.wording import listing
from workers.protocol import Compile, KeyDifference, OutputClass, OutputComparison, RankArtifacts, Role, TimedStart

MOST_FACTORS = 5
"""So many changed factors of a cache key are named; what else changed mostly follows from one of them."""


def timed_starts(found: Compile) -> list[TimedStart]:
    """Every start; of evidence that was stored when there was one of each kind, those."""
    if found.starts:
        return list(found.starts)
    pairs = ((Role.COLD, found.cold), (Role.WARM, found.warm))
    return [TimedStart(role=role, repeat=1, times=times) for role, times in pairs if times is not None]


def name_of(start: TimedStart, starts: Sequence[TimedStart]) -> str:
    """With its number where there are several of its kind."""
    several = sum(other.role is start.role for other in starts) > 1
    return f"{start.role} start {start.repeat}" if several else f"{start.role} start"


def begun_differently(starts: Sequence[TimedStart]) -> Iterator[str]:
    """Kinds of start of which some hold the imports and some do not: no median stands for both."""
    for role in (Role.COLD, Role.WARM):
        noted = [start.times.forked for start in starts if start.role is role and start.times.forked is not None]
        if len(set(noted)) > 1:
            yield (
                f"{sum(noted)} of {len(noted)} {role} starts were forked from a process that had imported vLLM and the "
                "others imported by themselves, so their times do not compare; `arms[].not_forked` says why"
            )


def not_warm(start: TimedStart, starts: Sequence[TimedStart]) -> Iterator[str]:
    """Which of the three a rank did not do, with its numbers; and why the cold start's artifacts were not found."""
    saved = _saved_by_rank(starts)
    for rank in start.times.artifacts.ranks:
        problems = _problems(rank, saved.get(rank.rank))
        if problems:
            yield f"rank {rank.rank} is not warm: it {listing(problems)}"
    yield from _why(start.cache_keys)


def _saved_by_rank(starts: Sequence[TimedStart]) -> dict[int, int]:
    """What the cold start saved whose cache root the warm ones are given: the first."""
    first = next((start for start in starts if start.role is Role.COLD and start.repeat == 1), None)
    return {rank.rank: rank.saved for rank in first.times.artifacts.ranks} if first else {}


def _problems(rank: RankArtifacts, saved: int | None) -> list[str]:
    problems = []
    if rank.loaded == 0 or (saved is not None and rank.loaded < saved):
        of = "" if saved is None else f" of the {saved} that the cold start saved"
        problems.append(f"loaded {rank.loaded} artifacts{of}")
    if rank.saved:
        problems.append(f"saved {rank.saved}")
    if rank.compiled:
        problems.append(f"compiled {rank.compiled}")
    return problems


def _why(found: Sequence[KeyDifference]) -> Iterator[str]:
    """Each explanation once, with the ranks it holds for."""
    ranks: dict[str, list[int]] = {}
    for difference in found:
        ranks.setdefault(_explanation(difference), []).append(difference.rank)
    for text, where in ranks.items():
        yield f"cache key of rank {listing([str(rank) for rank in dict.fromkeys(where)])}: {text}"


def _explanation(found: KeyDifference) -> str:
    if found.problem is not None:
        return found.problem
    if not found.changed:
        return "no factor that vLLM notes has changed; what the cold start saved was there, or was lost, under this key"
    named = [f"{factor.name} {factor.cold} → {factor.warm}" for factor in found.changed[:MOST_FACTORS]]
    more = len(found.changed) - len(named)
    return "changed since the cold start: " + "; ".join(named) + (f"; and {more} more" if more else "")


def answers(start: TimedStart, starts: Sequence[TimedStart]) -> Iterator[Reason]:
    """A warm start gives the cold one's tokens: it runs the same code, loaded instead of compiled."""
    if start.outputs is None:
        return
    text = f"{name_of(start, starts)}: {_answers(start.outputs)}"
    if start.outputs.klass is OutputClass.DRIFT and start.outputs.compared_tokens:
        yield Reason(None, text)
    elif start.outputs.klass is not OutputClass.IDENTICAL or not start.outputs.compared_tokens:
        yield Reason(Verdict.INVALID_MEASUREMENT, text)


def _answers(found: OutputComparison) -> str:
    if found.klass is None or not found.compared_tokens:
        return f"its tokens were not compared with the cold start's: {found.problem or 'no tokens'}"
    if found.klass is OutputClass.GARBAGE:
        return "a log-probability is not a finite number"
    if found.klass is OutputClass.DRIFT:
        return f"the cold start's tokens, log-probabilities drift by {found.worst_logprob_difference}"
    first = found.first_difference
    where = "" if first is None else f": request {first.request}, position {first.position}, "
    which = "" if first is None else f"token {first.found} where {first.expected} was"
    return f"other tokens than the cold start{where}{which}"
