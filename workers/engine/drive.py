"""Put a batch plan to an engine and keep what it answers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from workers.protocol import BatchPlan

if TYPE_CHECKING:
    from vllm.v1.engine.llm_engine import LLMEngine

FIRST_PLAIN_TOKEN = 2
"""Below are the special tokens of a tiny model."""


def prompts(plan: BatchPlan, vocabulary: int) -> list[list[list[int]]]:
    """Token ids per wave and request, drawn from the plan's seed."""
    draw = random.Random(plan.seed)
    low = min(FIRST_PLAIN_TOKEN, vocabulary - 1)
    return [[[draw.randrange(low, vocabulary) for _ in range(length)] for length in wave] for wave in plan.waves]


def drive(engine: LLMEngine, plan: BatchPlan, vocabulary: int) -> list[dict[str, Any]]:
    """Run every wave to its end.

    Returns:
        Per request, in the plan's order: ``prompt`` and ``tokens`` (ids), ``logprobs`` (of each chosen token) and
        ``top`` (per position the best alternatives, id → log-probability).
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    params = SamplingParams(
        temperature=0.0,
        max_tokens=plan.max_tokens,
        logprobs=plan.logprobs,
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
    answers: dict[int, dict[str, Any]] = {}
    number = 0
    for wave in prompts(plan, vocabulary):
        for token_ids in wave:
            engine.add_request(str(number), {"prompt_token_ids": token_ids}, params.clone())
            number += 1
        while engine.has_unfinished_requests():
            for output in engine.step():
                if output.finished:
                    answers[int(output.request_id.split("-")[0])] = _answer(output)
    return [answers[key] for key in sorted(answers)]


def _answer(output: Any) -> dict[str, Any]:
    completion = output.outputs[0]
    tokens = list(completion.token_ids)
    tops = [{token: entry.logprob for token, entry in position.items()} for position in completion.logprobs]
    return {
        "prompt": list(output.prompt_token_ids),
        "tokens": tokens,
        "logprobs": [top[token] for top, token in zip(tops, tokens, strict=True)],
        "top": [{str(token): value for token, value in top.items()} for top in tops],
    }
