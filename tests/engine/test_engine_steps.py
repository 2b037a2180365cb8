"""What the worker tells the recorder of a step, asked of vLLM's own objects."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import vllm.distributed
import vllm.v1.worker.utils
from vllm.config import VllmConfig
from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput

from workers.engine.steps import believed_scattered, number_of, order_of, position, requests_of
from workers.probes.guards import ATTENTION_OP
from workers.probes.recorder import Position


def new(name: str, computed: int) -> NewRequestData:
    return NewRequestData(
        req_id=name,
        prompt_token_ids=[1, 2, 3],
        mm_features=[],
        sampling_params=None,
        pooling_params=None,
        block_ids=([],),
        num_computed_tokens=computed,
        lora_request=None,
    )


def scheduled(started: dict[str, int], running: dict[str, int], tokens: dict[str, int]) -> SchedulerOutput:
    """A step: requests that are new in it and ones that run already, each with its computed tokens."""
    output = SchedulerOutput.make_empty()
    output.scheduled_new_reqs = [new(name, computed) for name, computed in started.items()]
    output.scheduled_cached_reqs = CachedRequestData(
        req_ids=list(running),
        resumed_req_ids=set(),
        new_token_ids=[],
        all_token_ids={},
        new_block_ids=[None] * len(running),
        num_computed_tokens=list(running.values()),
        num_output_tokens=[1] * len(running),
    )
    output.num_scheduled_tokens = tokens
    output.total_num_scheduled_tokens = sum(tokens.values())
    return output


def test_requests_of_a_step_have_their_first_position_and_tokens() -> None:
    tokens = {"2-abc": 1, "0-def": 1, "7-a-b": 5, "11-c": 3}
    step = scheduled({"11-c": 0, "7-a-b": 16}, {"0-def": 9, "2-abc": 4}, tokens)
    assert requests_of(step) == [(2, 4, 1), (0, 9, 1), (7, 16, 5), (11, 0, 3)]


def test_a_step_without_requests_has_none() -> None:
    assert requests_of(SchedulerOutput.make_empty()) == []


def test_a_request_of_which_nothing_is_known_is_an_error() -> None:
    with pytest.raises(KeyError, match="5-x"):
        requests_of(scheduled({"0-a": 0}, {}, {"0-a": 1, "5-x": 2}))


@pytest.mark.parametrize(("name", "number"), [("0", 0), ("12", 12), ("12-0a1b2c3d", 12), ("3-4-5", 3)])
def test_the_number_is_what_the_driver_gave(name: str, number: int) -> None:
    assert number_of(name) == number


def test_a_name_that_is_not_the_drivers_is_an_error() -> None:
    with pytest.raises(ValueError, match="warm"):
        number_of("warm-up")


def test_rows_stand_in_the_order_of_the_batch() -> None:
    assert order_of(SimpleNamespace(input_batch=SimpleNamespace(req_ids=["4-a", "0-b", "12-c"]))) == [4, 0, 12]
    assert order_of(SimpleNamespace(input_batch=SimpleNamespace(req_ids=[]))) == []
    assert order_of(SimpleNamespace()) is None
    assert order_of(SimpleNamespace(input_batch=None)) is None


# --- what the runner takes the residual for ---------------------------------------------------------------------------


@pytest.fixture
def config() -> VllmConfig:
    """SP on two ranks with the full graph."""
    built = VllmConfig()
    built.parallel_config.tensor_parallel_size = 2
    built.compilation_config.pass_config.enable_sp = True
    built.compilation_config.splitting_ops = []
    built.compilation_config.use_inductor_graph_partition = False
    return built


def test_with_sp_on_two_ranks_the_residual_is_taken_for_scattered(config: VllmConfig) -> None:
    assert believed_scattered(config, 8) is True


def test_without_sp_or_on_one_rank_it_is_not(config: VllmConfig) -> None:
    config.parallel_config.tensor_parallel_size = 1
    assert believed_scattered(config, 8) is False
    config.parallel_config.tensor_parallel_size = 2
    config.compilation_config.pass_config.enable_sp = False
    assert believed_scattered(config, 8) is False


def test_where_the_runner_refuses_the_question_nothing_is_known(config: VllmConfig) -> None:
    assert believed_scattered(config, 7) is None, "seven tokens are no multiple of two ranks"
    config.compilation_config.splitting_ops = [ATTENTION_OP]
    assert believed_scattered(config, 8) is None
    config.compilation_config.use_inductor_graph_partition = True
    assert believed_scattered(config, 8) is True


def test_without_a_forward_pass_or_the_runners_helper_nothing_is_known(
    config: VllmConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert believed_scattered(config, None) is None
    monkeypatch.delattr(vllm.v1.worker.utils, "is_residual_scattered_for_sp")
    assert believed_scattered(config, 8) is None


# --- where a process stands -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layers", "stages", "first_sites"), [(4, 1, [0]), (4, 2, [0, 4]), (5, 2, [0, 6]), (7, 3, [0, 4, 10])]
)
def test_the_first_site_of_a_stage_follows_from_the_layers_before_it(
    layers: int, stages: int, first_sites: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    config: Any = SimpleNamespace(model_config=SimpleNamespace(get_total_num_hidden_layers=lambda: layers))
    monkeypatch.setattr(vllm.distributed, "get_tp_group", lambda: SimpleNamespace(rank_in_group=1))
    found = []
    for stage in range(stages):
        group = SimpleNamespace(rank_in_group=stage, world_size=stages)
        monkeypatch.setattr(vllm.distributed, "get_pp_group", lambda group=group: group)
        found.append(position(config))
    assert found == [Position(stage, 1, first) for stage, first in enumerate(first_sites)]
