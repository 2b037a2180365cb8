"""The timed starts of a run, each with what proves it, and the one of several that stands for them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers import cache_keys, cache_root
from workers.outputs import compare_outputs
from workers.protocol import (
    ArmSpec,
    Compile,
    CompileTimes,
    KeyDifference,
    OutputComparison,
    Policy,
    RankArtifacts,
    Role,
    TimedStart,
)

TIMED = (Role.COLD, Role.WARM)


@dataclass(frozen=True)
class _Start:
    spec: ArmSpec
    times: CompileTimes
    result: dict[str, Any]


class Starts:
    """Cold and warm starts as they come through. ``policy``: how their answers are compared."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._starts: list[_Start] = []
        self._found: list[TimedStart] = []

    def add(self, spec: ArmSpec, times: CompileTimes, result: dict[str, Any]) -> None:
        """Take in a start that came through, before its cache root is gone. ``result``: its ``result.json``."""
        sharing = [start for start in self._starts if start.spec.cache_root == spec.cache_root]
        folder = Path(spec.folder)
        cache_keys.keep(Path(spec.cache_root), folder, [Path(start.spec.folder) for start in sharing])
        start = _Start(spec, times, result)
        cold = next((start for start in sharing if start.spec.role is Role.COLD), None)
        judged = spec.role is Role.WARM and cold is not None
        self._starts.append(start)
        self._found.append(
            TimedStart(
                role=spec.role,
                repeat=spec.repeat,
                times=times,
                outputs=self._outputs(start, cold) if judged and cold else None,
                cache_keys=_not_found(start, cold) if judged and cold else [],
                cache_problem=cache_root.trouble(spec.cache_root),
            )
        )

    def _outputs(self, warm: _Start, cold: _Start) -> OutputComparison:
        roles = (Role.WARM, Role.COLD)
        return compare_outputs(warm.result["outputs"], cold.result["outputs"], roles, self._policy)

    def evidence(self) -> Compile:
        """All starts, and of each kind the one that took the median time."""
        of = {role: [start.times for start in self._found if start.role is role] for role in TIMED}
        return Compile(cold=median(of[Role.COLD]), warm=median(of[Role.WARM]), starts=self._found)


def _not_found(warm: _Start, cold: _Start) -> list[KeyDifference]:
    """For each rank that loaded less than the cold start had saved: what of its cache key is another."""
    saved = {rank.rank: rank.saved for rank in cold.times.artifacts.ranks}
    short = [rank.rank for rank in warm.times.artifacts.ranks if _is_short(rank, saved.get(rank.rank, 0))]
    return cache_keys.differences(Path(cold.spec.folder), Path(warm.spec.folder), short)


def _is_short(rank: RankArtifacts, saved: int) -> bool:
    return rank.loaded == 0 or rank.loaded < saved


def median(starts: Sequence[CompileTimes]) -> CompileTimes | None:
    """The start whose total is the median (the lower of the two in the middle), with the spread of all.

    ``None`` when there is none.
    """
    if not starts:
        return None
    totals = [times.total_s for times in starts]
    shown = starts[totals.index(statistics.median_low(totals))]
    spread = {"repeats": totals, "median_s": statistics.median(totals), "min_s": min(totals), "max_s": max(totals)}
    return shown.model_copy(update=spread)
