"""What is worth a word about the times of a start, and makes none of them wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from service.domain.case import Reason
from workers.protocol import ArmReport, CompileTimes, Phase, RankTimes, Role, TimedStart

Skew = dict[str, float | int | str]


def arm_notes(arm: ArmReport) -> Iterator[str]:
    """What could not be made of an arm's traces, on which machines it ran, if on several, and a clock that was set."""
    if arm.traces is not None:
        yield from arm.traces.notes
    if arm.machines:
        places = "; ".join(f"{_ranks(place.ranks)} on {place.host} (node {place.node[:8]})" for place in arm.machines)
        yield f"it ran on {len(arm.machines)} machines: {places}"
    if arm.clock_set_by_s is not None:
        way = "forward" if arm.clock_set_by_s > 0 else "back"
        seconds = abs(arm.clock_set_by_s)
        yield f"the machine's clock was set {way} by {seconds:,.0f} s while it ran; no phase and no total hangs on it"


def _ranks(numbers: Sequence[int]) -> str:
    return f"rank {numbers[0]}" if len(numbers) == 1 else f"ranks {numbers[0]} to {numbers[-1]}"


def unexplained(times: CompileTimes, tolerance: float) -> Iterator[str]:
    """Ranks of which more than this part of the time belongs to no phase."""
    for rank in times.ranks:
        if times.total_s > 0 and rank.unaccounted_s > tolerance * times.total_s:
            part = rank.unaccounted_s / times.total_s
            yield f"{rank.unaccounted_s:.2f} s of rank {rank.rank} ({part:.1%}) belong to no phase"


def gaps(times: CompileTimes) -> Iterator[str]:
    """Processes whose record of what they did is not whole."""
    for process in times.processes:
        who = "the main process" if process.rank is None else f"rank {process.rank}"
        yield from (f"{who}: {problem}" for problem in process.problems)


def other_kv_cache(starts: Sequence[TimedStart]) -> Iterator[Reason]:
    """Cold and warm starts leave the same memory to the KV cache, unless compiling held on to some."""
    found = {role: _blocks(starts, role) for role in (Role.COLD, Role.WARM)}
    if all(found.values()) and found[Role.COLD] != found[Role.WARM]:
        cold, warm = (" or ".join(f"{number:,}" for number in sorted(blocks)) for blocks in found.values())
        yield Reason(None, f"the KV cache has {cold} blocks after a cold start and {warm} after a warm one")


def _blocks(starts: Sequence[TimedStart], role: Role) -> set[int]:
    return {start.times.kv_blocks for start in starts if start.role is role and start.times.kv_blocks is not None}


def skew(ranks: Sequence[RankTimes]) -> list[Skew]:
    """Per phase the rank that took longest in it, its seconds, and by how many it is behind the fastest.

    Worst first. A phase that a rank has not gone through took it 0 s. Of one rank alone there is nothing to say.
    """
    if len(ranks) < 2:
        return []
    names = dict.fromkeys(phase.name for rank in ranks for phase in rank.phases)
    return sorted((_skew(name, ranks) for name in names), key=lambda item: (-float(item["behind_s"]), item["phase"]))


def _skew(name: str, ranks: Sequence[RankTimes]) -> Skew:
    seconds = {rank.rank: _spent(rank.phases, name) for rank in ranks}
    slowest = max(seconds, key=lambda rank: seconds[rank])
    return {
        "phase": name,
        "slowest": slowest,
        "s": seconds[slowest],
        "behind_s": seconds[slowest] - min(seconds.values()),
    }


def _spent(phases: Sequence[Phase], name: str) -> float:
    return sum(phase.s for phase in phases if phase.name == name)
