"""What one run of a cell gives for each figure that is followed over time."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from service.domain.figures import COLD_S, COMPILE_S, PEAK_RSS, PHASE_OF_COLD, PHASE_OF_WARM, RANK_SPREAD_S, WARM_S
from service.domain.findings import COMPILER_PHASES
from service.domain.start_findings import timed_starts
from workers.protocol import CompileTimes, Evidence, RankTimes, Role


@dataclass(frozen=True)
class Measured:
    """The median of ``repeats`` of a figure, and the least and the largest of them."""

    figure: str
    value: float
    lowest: float
    highest: float
    repeats: int


def measured(evidence: Evidence, forked: bool) -> tuple[Measured, ...]:
    """All figures of a run; none of a run whose starts were not begun as they should be.

    ``forked``: engines are to be forked from a process that has imported vLLM. A start that imports by itself takes
    seconds more, so that it is no measurement of the same.
    """
    return () if begun_otherwise(evidence, forked) else tuple(_figures(evidence))


def begun_otherwise(evidence: Evidence, forked: bool) -> bool:
    """Has some start imported by itself where it should not, or the other way round?"""
    return any(start.times.forked is (not forked) for start in timed_starts(evidence.compile))


def _figures(evidence: Evidence) -> Iterator[Measured]:
    starts = timed_starts(evidence.compile)
    cold = [start.times for start in starts if start.role is Role.COLD]
    warm = [start.times for start in starts if start.role is Role.WARM]
    memory = [arm.peak_rss_bytes for arm in evidence.arms if arm.role is Role.COLD]
    yield from _of(COLD_S.name, [times.total_s for times in cold])
    yield from _of(WARM_S.name, [times.total_s for times in warm])
    yield from _of(COMPILE_S.name, _per_start(cold, lambda times: max(map(_compiling, times.ranks))))
    yield from _of(PEAK_RSS.name, [float(peak) for peak in memory if peak is not None])
    several = [times for times in cold if len(times.ranks) > 1]
    yield from _of(RANK_SPREAD_S.name, _per_start(several, lambda times: _spread(list(map(_compiling, times.ranks)))))
    for prefix, group in ((PHASE_OF_COLD, cold), (PHASE_OF_WARM, warm)):
        names = dict.fromkeys(phase.name for times in group for rank in times.ranks for phase in rank.phases)
        for name in names:
            yield from _of(prefix + name, [_longest(name, times) for times in group if times.ranks])


def _of(figure: str, values: Sequence[float]) -> Iterator[Measured]:
    if values:
        yield Measured(figure, statistics.median(values), min(values), max(values), len(values))


def _per_start(starts: Sequence[CompileTimes], figure: Callable[[CompileTimes], float]) -> list[float]:
    return [figure(times) for times in starts if times.ranks]


def _compiling(rank: RankTimes) -> float:
    return sum(phase.s for phase in rank.phases if phase.name in COMPILER_PHASES)


def _spread(values: Sequence[float]) -> float:
    return max(values) - min(values)


def _longest(name: str, times: CompileTimes) -> float:
    return max(sum(phase.s for phase in rank.phases if phase.name == name) for rank in times.ranks)
