"""What is put to an engine: prompts from a seed, in waves. Against a scheduler of our own, which only counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.engine.drive import drive, embeddings, waves
from workers.protocol import BatchPlan

HIDDEN = 16
VOCABULARY = 64


@dataclass
class Request:
    prompt: Any
    params: Any
    tokens: list[int] = field(default_factory=list)


@dataclass
class Engine:
    """Schedules as vLLM does: every request that is there has one step; with ``stages`` that many steps overlap.

    Steps are kept: (number of the request, how many tokens it had before) of each request in it.
    """

    stages: int = 1
    caching: bool = False
    resets: int = 0
    steps: list[list[tuple[int, int]]] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    _there: dict[str, Request] = field(default_factory=dict)
    _running: list[list[str]] = field(default_factory=list)

    @property
    def vllm_config(self) -> Any:
        return SimpleNamespace(
            cache_config=SimpleNamespace(enable_prefix_caching=self.caching),
            model_config=SimpleNamespace(get_inputs_embeds_size=lambda: HIDDEN),
        )

    def reset_prefix_cache(self) -> bool:
        self.resets += 1
        return not self._there

    def add_request(self, name: str, prompt: Any, params: Any) -> None:
        self.inputs.append(prompt)
        self._there[f"{name}-suffix"] = Request(prompt, params)

    def has_unfinished_requests(self) -> bool:
        return bool(self._there)

    def step(self) -> list[Any]:
        busy = {name for batch in self._running for name in batch}
        batch = [name for name in self._there if name not in busy]
        self._running.append(batch)
        if batch:
            self.steps.append([(int(name.split("-")[0]), len(self._there[name].tokens)) for name in batch])
        if len(self._running) < self.stages:
            return []
        return [output for name in self._running.pop(0) if (output := self._advance(name)) is not None]

    def _advance(self, name: str) -> Any:
        from vllm.sampling_params import RequestOutputKind

        request = self._there[name]
        request.tokens.append(7)
        finished = len(request.tokens) == request.params.max_tokens
        if finished:
            del self._there[name]
        elif request.params.output_kind is RequestOutputKind.FINAL_ONLY:
            return None
        logprobs = [{7: SimpleNamespace(logprob=-1.0)} for _ in request.tokens]
        completion = SimpleNamespace(token_ids=list(request.tokens), logprobs=logprobs)
        return SimpleNamespace(request_id=name, finished=finished, outputs=[completion])


def driven(plan: BatchPlan, **options: Any) -> tuple[Engine, list[dict[str, Any]]]:
    engine = Engine(**options)
    return engine, drive(engine, plan, VOCABULARY)  # type: ignore[arg-type]


# --- waves -----------------------------------------------------------------------------------------------------------


def test_a_wave_is_submitted_at_once_and_run_to_its_end() -> None:
    engine, answers = driven(BatchPlan(waves=[[2], [1, 3]], max_tokens=2))
    assert engine.steps == [[(0, 0)], [(0, 1)], [(1, 0), (2, 0)], [(1, 1), (2, 1)]]
    assert [len(answer["prompt"]) for answer in answers] == [2, 1, 3]
    assert all(answer["tokens"] == [7, 7] for answer in answers)
    assert [engine.inputs[n] for n in range(3)] == [{"prompt_token_ids": answer["prompt"]} for answer in answers]


STAGGERED = [[(0, 0)], [(0, 1), (1, 0)], [(0, 2), (1, 1), (2, 0)], [(1, 2), (2, 1)], [(2, 2)]]


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_of_a_staggered_wave_one_request_joins_those_that_decode_each_step(stages: int) -> None:
    """Whatever the engine's pipeline: the reference has none, and is to have the same steps."""
    engine, answers = driven(BatchPlan(waves=[], staggered=[[5, 1, 2]], max_tokens=3), stages=stages)
    assert engine.steps == STAGGERED
    assert [len(answer["tokens"]) for answer in answers] == [3, 3, 3]


def test_staggered_waves_come_after_the_others() -> None:
    engine, answers = driven(BatchPlan(waves=[[4]], staggered=[[1, 2]], max_tokens=2))
    assert engine.steps == [[(0, 0)], [(0, 1)], [(1, 0)], [(1, 1), (2, 0)], [(2, 1)]]
    assert [len(answer["prompt"]) for answer in answers] == [4, 1, 2]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5), max_size=4),
    st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5), max_size=3),
    st.integers(1, 4),
    st.integers(1, 3),
    st.booleans(),
)
def test_every_request_is_answered_in_full(
    together: list[list[int]], staggered: list[list[int]], max_tokens: int, stages: int, caching: bool
) -> None:
    plan = BatchPlan(waves=together, staggered=staggered, max_tokens=max_tokens, prefix_caching=caching)
    engine, answers = driven(plan, stages=stages, caching=caching)
    times = 2 if caching else 1
    lengths = [length for wave in (*together, *staggered) for _ in range(times) for length in wave]
    assert [len(answer["prompt"]) for answer in answers] == lengths
    assert all(len(answer["tokens"]) == len(answer["logprobs"]) == max_tokens for answer in answers)
    assert {request for step in engine.steps for request in step} == {
        (number, before) for number in range(len(lengths)) for before in range(max_tokens)
    }


# --- prompts ---------------------------------------------------------------------------------------------------------


def test_prompts_come_from_the_seed() -> None:
    plan = BatchPlan(waves=[[20], [30]], staggered=[[10]])
    first, again = (list(waves(plan, VOCABULARY)) for _ in range(2))
    assert first == again
    other = list(waves(plan.model_copy(update={"seed": 1}), VOCABULARY))
    assert all(mine.prompts != theirs.prompts for mine, theirs in zip(first, other, strict=True))
    assert {token for wave in first for prompt in wave.prompts for token in prompt} <= set(range(2, VOCABULARY))


def test_with_prefix_caching_every_wave_comes_twice_and_starts_from_nothing() -> None:
    plan = BatchPlan(waves=[[3, 2]], staggered=[[4]], max_tokens=1, prefix_caching=True)
    engine, answers = driven(plan, caching=True)
    prompts = [answer["prompt"] for answer in answers]
    assert prompts == [*prompts[:2], *prompts[:2], prompts[4], prompts[4]]
    assert engine.steps == [[(0, 0), (1, 0)], [(2, 0), (3, 0)], [(4, 0)], [(5, 0)]]
    assert engine.resets == 1


def test_an_engine_without_a_prefix_cache_is_not_asked_to_empty_it() -> None:
    assert driven(BatchPlan())[0].resets == 0


def test_a_prefix_cache_that_cannot_be_emptied_is_an_error() -> None:
    engine = Engine(caching=True)
    engine.add_request("0", {"prompt_token_ids": [1]}, None)
    with pytest.raises(RuntimeError, match="something still holds blocks"):
        drive(engine, BatchPlan(), VOCABULARY)  # type: ignore[arg-type]


# --- embeddings ------------------------------------------------------------------------------------------------------


def test_embeddings_stand_in_for_token_ids() -> None:
    engine, answers = driven(BatchPlan(waves=[[2, 3]], max_tokens=1, prompt_embeds=True))
    assert [answer["prompt"] for answer in answers] == [[None] * 2, [None] * 3]
    assert all(list(given) == ["prompt_embeds"] for given in engine.inputs)
    assert [given["prompt_embeds"].shape for given in engine.inputs] == [(2, HIDDEN), (3, HIDDEN)]


def test_embeddings_are_the_same_on_every_arm_and_differ_between_prompts_and_seeds() -> None:
    first = embeddings([5, 6], HIDDEN, seed=0)
    assert torch.equal(first, embeddings([5, 6], HIDDEN, seed=0))
    assert not torch.equal(first, embeddings([5, 6], HIDDEN, seed=1))
    assert not torch.equal(first, embeddings([5, 7], HIDDEN, seed=0))
    # Rows differ too: a slice that belongs to another token is seen.
    assert not torch.equal(first[0], first[1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_embeddings_are_exact_in_every_dtype(dtype: torch.dtype) -> None:
    found = embeddings(list(range(200)), HIDDEN, seed=3)
    assert torch.equal(found.to(dtype).to(torch.float32), found)
    assert found.unique().numel() > 400
