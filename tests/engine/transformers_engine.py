"""An engine that answers as vLLM's does and computes with ``transformers``, for the mapping of requests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch


class TransformersEngine:
    """Serves one request per call of :meth:`step`, greedily, a token at a time."""

    def __init__(self, model: Any, max_model_len: int) -> None:
        self.vllm_config = SimpleNamespace(model_config=SimpleNamespace(max_model_len=max_model_len))
        self.prompts: list[list[int]] = []
        self.aborted: list[str] = []
        self._model = model
        self._most = max_model_len
        self._running: dict[str, Any] = {}

    def add_request(self, number: str, prompt: dict[str, list[int]], params: Any) -> None:
        ids = prompt["prompt_token_ids"]
        assert 1 <= len(ids) < self._most, "vLLM refuses a prompt that leaves no place for a token"
        self.prompts.append(ids)
        self._running[number] = SimpleNamespace(ids=ids, params=params, tokens=[], logprobs=[])

    def has_unfinished_requests(self) -> bool:
        return bool(self._running)

    def abort_request(self, numbers: list[str]) -> None:
        self.aborted += numbers
        for number in numbers:
            del self._running[number]

    def step(self) -> list[Any]:
        number, request = next(iter(self._running.items()))
        table = self._table([*request.ids, *request.tokens])
        token = int(table[-1].argmax())
        request.tokens.append(token)
        request.logprobs.append(_position(table[-1], token))
        stopped = token in (request.params.stop_token_ids or []) and not request.params.ignore_eos
        full = len(request.ids) + len(request.tokens) >= self._most
        finished = stopped or full or len(request.tokens) >= request.params.max_tokens
        if finished:
            del self._running[number]
        answer = SimpleNamespace(token_ids=list(request.tokens), logprobs=list(request.logprobs))
        return [
            SimpleNamespace(
                request_id=number,
                finished=finished,
                outputs=[answer],
                prompt_token_ids=request.ids,
                prompt_logprobs=self._of_prompt(request) if request.params.prompt_logprobs else None,
            )
        ]

    def _table(self, ids: list[int]) -> torch.Tensor:
        """Log-probabilities, tokens × vocabulary."""
        with torch.no_grad():
            return torch.log_softmax(self._model(torch.tensor([ids])).logits[0].float(), dim=-1)

    def _of_prompt(self, request: Any) -> list[Any]:
        table = self._table(request.ids)
        return [None, *(_position(row, token) for row, token in zip(table, request.ids[1:], strict=False))]


def _position(row: torch.Tensor, token: int) -> dict[int, Any]:
    """The token's own log-probability and the highest one, as vLLM gives them."""
    return {number: SimpleNamespace(logprob=float(row[number])) for number in {token, int(row.argmax())}}
