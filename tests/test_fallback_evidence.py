"""From what the ranks told of their fallbacks to the evidence: sums, and what is not known."""

from __future__ import annotations

from typing import Any

from workers.fallback import NO_ARM, NOT_TOLD, fallback
from workers.protocol import FallbackOp, PatchState, RankFallback, Role

OP = FallbackOp(op="vllm::x", calls=2, slow_path_s=0.25, characters=100)


def rank(number: int, calls: int = 2, **changes: Any) -> dict[str, Any]:
    counts = {"calls": calls, "fast_calls": 5, "slow_path_s": 0.25, "characters": 100, "eager": False, "ops": [OP]}
    told = RankFallback(rank=number, **(counts | changes))
    return {"rank": number, "fallback": told.model_dump(mode="json")}


def blind(number: int) -> dict[str, Any]:
    return {"rank": number, "fallback": RankFallback(rank=number, reason="it moved").model_dump(mode="json")}


def arm(*ranks: dict[str, Any]) -> dict[str, Any]:
    return {"ranks": list(ranks)}


def test_ranks_of_the_cold_arm_are_summed_up() -> None:
    nothing = rank(0, calls=0, fast_calls=0, slow_path_s=0.0, characters=0, ops=[])
    found = fallback(
        {Role.WARM: arm(nothing), Role.PROBE: arm(rank(0, calls=9)), Role.COLD: arm(rank(0), rank(1, calls=3))},
        PatchState.REMOVED,
    )
    assert (found.arm, found.calls, found.fast_calls, found.characters) == (Role.COLD, 5, 10, 200)
    assert (found.slow_path_s, found.eager, found.state, found.reason) == (0.5, False, PatchState.REMOVED, None)
    by_arm = {item.arm: item.ranks for item in found.arms}
    assert [told.calls for told in by_arm[Role.COLD]] == [2, 3]
    assert by_arm[Role.COLD][1].ops == [OP]
    # Looked at, and nothing compiled.
    assert (by_arm[Role.WARM][0].calls, by_arm[Role.WARM][0].fast_calls) == (0, 0)


def test_a_rank_that_could_not_look_leaves_no_sum() -> None:
    found = fallback({Role.COLD: arm(rank(0), blind(1))}, PatchState.NATIVE)
    assert (found.calls, found.slow_path_s, found.characters, found.fast_calls, found.eager) == (None,) * 5
    assert found.reason == "rank 1: it moved"
    assert found.arms[0].ranks[0].calls == 2


def test_a_rank_that_was_not_asked_is_no_zero() -> None:
    found = fallback({Role.PROBE: arm({"rank": 1})}, None)
    assert (found.arm, found.calls, found.reason) == (Role.PROBE, None, f"rank 1: {NOT_TOLD}")


def test_no_arm_is_no_zero() -> None:
    found = fallback({}, None)
    assert (found.arm, found.calls, found.slow_path_s, found.reason, found.arms) == (None, None, None, NO_ARM, [])


def test_ranks_that_disagree_have_no_common_answer() -> None:
    found = fallback({Role.COLD: arm(rank(0, eager=True), rank(1))}, None)
    assert (found.eager, found.calls) == (None, 4)
