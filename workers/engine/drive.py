"""Put a batch plan to an engine and keep what it answers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workers.protocol import BatchPlan

if TYPE_CHECKING:
    import torch
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine.llm_engine import LLMEngine

FIRST_PLAIN_TOKEN = 2
"""Below are the special tokens of a tiny model."""

FINEST, STEPS_OF_EMBEDDING = 2.0**-10, 255
"""Embeddings are whole multiples of ``FINEST``, at most so many either way: exact in every dtype, bfloat16 too."""

Prompt = list[int]
"""Token ids; where embeddings are sent in their place, of the same length and not put to the engine."""


@dataclass(frozen=True)
class Wave:
    """Requests that are submitted together: all at once, or one per step."""

    prompts: list[Prompt]
    staggered: bool


def waves(plan: BatchPlan, vocabulary: int) -> Iterator[Wave]:
    """The waves in the order they are run, tokens drawn from the plan's seed. Requests are numbered in this order.

    With prefix caching every wave comes twice: what the first time computes, the second is to find in the cache.
    """
    draw = random.Random(plan.seed)
    low = min(FIRST_PLAIN_TOKEN, vocabulary - 1)
    planned = [(wave, False) for wave in plan.waves] + [(wave, True) for wave in plan.staggered]
    for lengths, staggered in planned:
        prompts = [[draw.randrange(low, vocabulary) for _ in range(length)] for length in lengths]
        for _ in range(2 if plan.prefix_caching else 1):
            yield Wave(prompts, staggered)


def embeddings(prompt: Prompt, hidden: int, seed: int) -> torch.Tensor:
    """Rows that stand for ``prompt`` (tokens × hidden, float32), equal for equal prompts and the same on every arm.

    In size like those of a tiny model. They are no rows of the model's own table.
    """
    import torch

    draw = torch.Generator().manual_seed(random.Random(f"{seed} {prompt}").getrandbits(63))
    steps = torch.randint(-STEPS_OF_EMBEDDING, STEPS_OF_EMBEDDING + 1, (len(prompt), hidden), generator=draw)
    return steps.to(torch.float32) * FINEST


@dataclass
class _Driver:
    """``answers``: by number of the request."""

    engine: LLMEngine
    plan: BatchPlan
    answers: dict[int, dict[str, Any]] = field(default_factory=dict)
    _prompts: list[Prompt] = field(default_factory=list)

    def run(self, wave: Wave) -> None:
        """Submit ``wave`` and step until all of it is answered."""
        params = self._params(staggered=wave.staggered)
        for prompt in wave.prompts:
            self.engine.add_request(str(len(self._prompts)), self._input(prompt), params.clone())
            self._prompts.append(prompt)
            if wave.staggered:
                self._step_until_tokens_come()
        while self.engine.has_unfinished_requests():
            self._step()

    def _step_until_tokens_come(self) -> None:
        """One step of the model.

        An engine with pipeline stages first fills its pipeline, and returns from that with nothing. Going on then would
        put the next request into a step of its own, beside those that decode and not among them.
        """
        while self.engine.has_unfinished_requests() and not self._step():
            pass

    def _step(self) -> bool:
        """Whether there was something new from any request."""
        outputs = self.engine.step()
        for output in outputs:
            if output.finished:
                number = int(output.request_id.split("-")[0])
                self.answers[number] = self._answer(output, self._prompts[number])
        return bool(outputs)

    def _params(self, staggered: bool) -> SamplingParams:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            temperature=0.0,
            max_tokens=self.plan.max_tokens,
            logprobs=self.plan.logprobs,
            ignore_eos=True,
            detokenize=False,
            # All tokens so far, after every step or at the end.
            output_kind=RequestOutputKind.CUMULATIVE if staggered else RequestOutputKind.FINAL_ONLY,
        )

    def _input(self, prompt: Prompt) -> Any:
        if not self.plan.prompt_embeds:
            return {"prompt_token_ids": prompt}
        hidden = self.engine.vllm_config.model_config.get_inputs_embeds_size()
        return {"prompt_embeds": embeddings(prompt, hidden, self.plan.seed)}

    def _answer(self, output: Any, prompt: Prompt) -> dict[str, Any]:
        completion = output.outputs[0]
        tokens = list(completion.token_ids)
        tops = [{token: entry.logprob for token, entry in position.items()} for position in completion.logprobs]
        return {
            "prompt": [None] * len(prompt) if self.plan.prompt_embeds else prompt,
            "tokens": tokens,
            "logprobs": [top[token] for top, token in zip(tops, tokens, strict=True)],
            "top": [{str(token): value for token, value in top.items()} for top in tops],
        }


def drive(engine: LLMEngine, plan: BatchPlan, vocabulary: int) -> list[dict[str, Any]]:
    """Run every wave to its end.

    Returns:
        Per request, in the order of ``waves``: ``prompt`` and ``tokens`` (ids; a prompt of embeddings has ``None`` for
        each position), ``logprobs`` (of each chosen token) and ``top`` (per position the best alternatives, id →
        log-probability).

    Raises:
        RuntimeError: when what earlier plans left in the prefix cache cannot be forgotten.
    """
    # A plan that is run again has to compute again what it computed the first time.
    if engine.vllm_config.cache_config.enable_prefix_caching and engine.reset_prefix_cache() is False:
        raise RuntimeError("the prefix cache could not be emptied before the requests: something still holds blocks")
    driver = _Driver(engine, plan)
    for wave in waves(plan, vocabulary):
        driver.run(wave)
    return [driver.answers[number] for number in sorted(driver.answers)]
