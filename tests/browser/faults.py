"""Cells as real runs leave them, and as the judge sees them: a healthy one, and such as something is wrong with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from domain.healthy import LAYERS, RANKS, arm, case, compile_times, put

from service.domain.case import Case, Judgement, Reason
from service.domain.judge import conclude, judge
from service.domain.lifecycle import State
from service.domain.verdict import Verdict
from workers.protocol import Change, Failure, Outcome, Role

SITES = [f"layers.{layer}.{part}" for layer in range(LAYERS) for part in ("attn", "mlp")]
WRONG_SITE, WRONG_RANK = "layers.1.mlp", 1
SENTENCE = (
    f"rank {WRONG_RANK} holds at {WRONG_SITE} in step 3 the tokens of rank 0: 2 of 4 tokens are wrong, a jump; "
    "likely cause: the parts were gathered in another order"
)


@dataclass(frozen=True)
class Found:
    """What becomes of a cell."""

    case: Case
    judgement: Judgement
    state: State = State.FINISHED


def healthy() -> Found:
    return timed(8.0)


def residual_fault() -> Found:
    """One part of the residual is another rank's, from the last site on."""
    scores = [_score(site, rank) for site in SITES for rank in range(RANKS)]
    wrong: dict[str, Any] = {
        "bitwise_equal": False,
        "worst_score": 41.5,
        "wrong_steps": 4,
        "scores": scores,
        "first_divergence": {
            "site": WRONG_SITE,
            "rank": WRONG_RANK,
            "step": 3,
            "pattern": "swapped",
            "tokens": 2,
            "score": 41.5,
            "rows": [4, 6],
            "onset": "jump",
            "confusion": [[0.0, 1.41], [0.0, 1.38]],
            "sentence": SENTENCE,
        },
    }
    return _judged(case(*(put(f"residual.0.{key}", value) for key, value in wrong.items())))


def crashed() -> Found:
    """The engine of the probe died as it loaded."""
    failure = Failure(
        phase="load_weights",
        rank=1,
        message="the engine died",
        log_tail=["INFO loading", "\x1b[31mValueError: no <weights> & no way\x1b[0m"],
    )
    dead = arm(Role.PROBE, Outcome.CRASHED, failure).model_dump(mode="json")
    return _judged(case(put("arms.2", dead), put("residual", []), put("outputs", [])), State.FAILED)


def downgraded() -> Found:
    """A setting that somebody wrote was changed by the engine."""
    change = Change(
        key="compilation_config.splitting_ops",
        requested=["vllm.unified_attention"],
        effective=[],
        written=True,
        reason="SP needs the whole graph",
        where="vllm/config/vllm.py:800",
    )
    return _judged(case(changes=[change]))


def timed(warm_s: float) -> Found:
    """A healthy cell whose warm start took so long, on both ranks; whether that is slow is for the rules to say."""
    return _judged(case(put("compile.warm", _scaled(compile_times(0, 1, 0), warm_s / 10.0))))


def unlooked_at() -> Found:
    """A cell without evidence: its run was lost with its node."""
    found = case()
    return Found(found, conclude([Reason(Verdict.CRASHED, "its node was lost")], found.expect), State.CRASHED)


def _judged(found: Case, state: State = State.FINISHED) -> Found:
    return Found(found, judge(found), state)


def _scaled(times: dict[str, Any], factor: float) -> dict[str, Any]:
    """All seconds of a start, ``factor`` times as many."""
    ranks = [
        rank
        | {"total_s": rank["total_s"] * factor, "unaccounted_s": rank["unaccounted_s"] * factor}
        | {"phases": [phase | {"s": phase["s"] * factor} for phase in rank["phases"]]}
        for rank in times["ranks"]
    ]
    return times | {"total_s": times["total_s"] * factor, "ranks": ranks}


def _score(site: str, rank: int) -> dict[str, Any]:
    wrong = site == WRONG_SITE and rank == WRONG_RANK
    return {
        "site": site,
        "rank": rank,
        "floor": 1e-6,
        "median": 38.0 if wrong else 0.02,
        "p99": 41.0 if wrong else 0.4,
        "max": 41.5 if wrong else 0.6,
    }
