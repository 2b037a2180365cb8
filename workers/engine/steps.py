"""What one scheduled step consists of, for the recorder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workers.engine.internals import TargetMissing, resolve
from workers.probes.guards import RUNNER_HELPER
from workers.probes.recorder import Position
from workers.residual.taps import Request

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import SchedulerOutput


def requests_of(scheduled: SchedulerOutput) -> list[Request]:
    """(number of the request, its first position, how many tokens) of every request in the step."""
    first = {new.req_id: new.num_computed_tokens for new in scheduled.scheduled_new_reqs}
    cached = scheduled.scheduled_cached_reqs
    first |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    return [(number_of(name), first[name], tokens) for name, tokens in scheduled.num_scheduled_tokens.items()]


def number_of(name: str) -> int:
    """The number the driver gave a request; the engine appends letters of its own."""
    return int(name.partition("-")[0])


def order_of(runner: Any) -> list[int] | None:
    """The requests in the order of their rows in the batch that ran last; ``None`` where the runner does not tell."""
    names = getattr(getattr(runner, "input_batch", None), "req_ids", None)
    return [number_of(name) for name in names] if names is not None else None


def believed_scattered(config: VllmConfig, padded: int | None) -> bool | None:
    """What the runner takes the residual for; ``None`` where it refuses the question, or this version has none."""
    if padded is None:
        return None
    try:
        helper = resolve(RUNNER_HELPER, "ask the runner whether it takes the residual for scattered")
        return bool(helper(config, padded))
    except (TargetMissing, AssertionError):
        return None


def position(config: VllmConfig) -> Position:
    """Where this process stands among the ranks, and which site of the model is its first."""
    from vllm.distributed import get_pp_group, get_tp_group
    from vllm.distributed.utils import get_pp_indices

    stages = get_pp_group()
    layers = config.model_config.get_total_num_hidden_layers()
    start, _ = get_pp_indices(layers, stages.rank_in_group, stages.world_size)
    return Position(stage=stages.rank_in_group, tp_rank=get_tp_group().rank_in_group, first_site=2 * start)
