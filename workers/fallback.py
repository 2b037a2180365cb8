"""From what every rank told of its fallbacks to the evidence of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workers.protocol import ArmFallback, Fallback, PatchState, RankFallback, Role

COMPILING = (Role.COLD, Role.PROBE, Role.EVAL, Role.REPLICATED)
"""The arms that a run is summed up by, the first of them that is there. A warm one compiles nothing."""

NO_ARM = "no arm came through, so no rank could be asked"
NOT_TOLD = "this rank was not asked"


def fallback(results: Mapping[Role, Mapping[str, Any]], state: PatchState | None) -> Fallback:
    """``results``: ``result.json`` of the arms that came through; ``state``: what the patch was found to be."""
    arms = [ArmFallback(arm=role, ranks=[_told(rank) for rank in result["ranks"]]) for role, result in results.items()]
    ranks = {told.arm: told.ranks for told in arms}
    arm = next((role for role in (*COMPILING, *ranks) if role in ranks), None)
    asked = [] if arm is None else ranks[arm]
    return Fallback(
        calls=_sum([rank.calls for rank in asked]),
        slow_path_s=_sum([rank.slow_path_s for rank in asked]),
        state=state,
        fast_calls=_sum([rank.fast_calls for rank in asked]),
        characters=_sum([rank.characters for rank in asked]),
        eager=_agreed([rank.eager for rank in asked]),
        arm=arm,
        reason=_reason(asked),
        arms=arms,
    )


def _told(rank: Mapping[str, Any]) -> RankFallback:
    told = rank.get("fallback")
    return RankFallback.model_validate(told) if told else RankFallback(rank=rank["rank"], reason=NOT_TOLD)


def _sum(parts: Sequence[Any]) -> Any:
    return None if None in parts or not parts else sum(parts)


def _agreed(answers: list[bool | None]) -> bool | None:
    return answers[0] if len(set(answers)) == 1 else None


def _reason(ranks: list[RankFallback]) -> str | None:
    if not ranks:
        return NO_ARM
    return next((f"rank {rank.rank}: {rank.reason}" for rank in ranks if rank.reason is not None), None)
