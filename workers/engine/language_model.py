"""A running vLLM engine as lm_eval's language model.

Requests go to the engine as token ids, as those of a batch plan do. All requests of a kind are submitted at once, in
lm_eval's order, so that two arms schedule them alike.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import has_bos_prefix, normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.outputs import RequestOutput
    from vllm.v1.engine.llm_engine import LLMEngine

SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "seed", "repetition_penalty", "presence_penalty", "frequency_penalty",
)  # fmt: skip
"""Generation settings of a task that vLLM has by the same name."""

HARNESS_ONLY = ("until", "max_gen_toks", "do_sample")


@dataclass(frozen=True)
class Job:
    """One request: token ids, and the texts at which its answer ends."""

    prompt: list[int]
    params: SamplingParams
    until: tuple[str, ...] = ()


class EngineLM(TemplateLM):  # type: ignore[misc]
    """``engine`` with ``tokenizer``. ``not_finite`` counts log-probabilities that are no finite number, ``truncated``
    requests that lost their beginning."""

    def __init__(self, engine: LLMEngine, tokenizer: Any) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self.max_length: int = engine.vllm_config.model_config.max_model_len
        self.not_finite = 0
        self.truncated = 0
        self._engine = engine
        self._numbers = itertools.count()

    @property
    def eot_token_id(self) -> int:
        return int(self.tokenizer.eos_token_id)

    @property
    def prefix_token_id(self) -> int:
        """What stands before a text without context."""
        first = self.tokenizer.bos_token_id
        return self.eot_token_id if first is None else int(first)

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Token ids, with the tokenizer's own special tokens unless ``string`` brings its first one along."""
        if add_special_tokens is None and has_bos_prefix(string, self.tokenizer.bos_token):
            add_special_tokens = False
        special = {} if add_special_tokens is None else {"add_special_tokens": add_special_tokens}
        return list(self.tokenizer.encode(string, **special))

    # --- log-likelihood ----------------------------------------------------------------------------------------------

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **_: Any
    ) -> list[tuple[float, bool]]:
        """The log-probability of each continuation, and whether it is the likeliest token at every position."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            temperature=0.0,
            max_tokens=1,
            prompt_logprobs=1,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        # The engine generates a token after the prompt, which has to have a place.
        jobs = [Job(self._shorten(context + rest, self.max_length - 1), params) for _, context, rest in requests]
        lengths = [len(rest) for _, _, rest in requests]
        return [self._score(output, length) for output, length in zip(self._answers(jobs), lengths, strict=True)]

    def _score(self, output: RequestOutput, length: int) -> tuple[float, bool]:
        total, greedy = 0.0, True
        assert output.prompt_logprobs is not None
        assert output.prompt_token_ids is not None
        # The first token of a prompt has no probability; a continuation as long as that has lost it.
        scored = min(length, len(output.prompt_token_ids) - 1)
        places = zip(output.prompt_token_ids, output.prompt_logprobs, strict=True)
        for token, position in list(places)[-scored:] if scored else []:
            assert position is not None
            own = position[token].logprob
            total += own
            greedy = greedy and all(entry.logprob <= own for entry in position.values())
            self.not_finite += not math.isfinite(own)
        return total, greedy

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """The log-probability of each whole text, in windows as long as the model takes."""
        totals = []
        for request in requests:
            windows = get_rolling_token_windows(
                token_list=self.tok_encode(request.args[0]),
                prefix_token=self.prefix_token_id,
                # One token of context before the window, and one that the engine generates behind it.
                max_seq_len=self.max_length - 2,
                context_len=1,
            )
            parts = [(None, *make_disjoint_window(window)) for window in windows]
            totals.append(math.fsum(score for score, _ in self._loglikelihood_tokens(parts)))
        return totals

    # --- generation --------------------------------------------------------------------------------------------------

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """What the model writes after each context, up to the first of the task's stop texts."""
        jobs = [self._generation(*request.args) for request in requests]
        texts = []
        for job, output in zip(jobs, self._answers(jobs), strict=True):
            answer = output.outputs[0]
            self.not_finite += sum(
                position is None or not math.isfinite(position[token].logprob)
                for token, position in zip(answer.token_ids, answer.logprobs or [], strict=True)
            )
            texts.append(cut(self._text(answer.token_ids), job.until))
        return texts

    def _generation(self, context: str, asked: dict[str, Any]) -> Job:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        settings: dict[str, Any] = dict(normalize_gen_kwargs(asked, default_max_gen_toks=256))
        unknown = [key for key in settings if key not in (*SAMPLING, *HARNESS_ONLY)]
        if unknown:
            raise ValueError(f"the task asks for generation settings that are not known here: {', '.join(unknown)}")
        most = min(settings["max_gen_toks"], self.max_length - 1)
        params = SamplingParams(
            **{key: settings[key] for key in SAMPLING if key in settings},
            max_tokens=most,
            logprobs=0,
            stop_token_ids=[self.eot_token_id],
            detokenize=False,
            output_kind=RequestOutputKind.CUMULATIVE,
        )
        until = tuple(text for text in settings["until"] if text)
        return Job(self._shorten(self.tok_encode(context), self.max_length - most), params, until)

    def _shorten(self, tokens: list[int], most: int) -> list[int]:
        self.truncated += len(tokens) > most
        return tokens[-most:]

    def _text(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))

    # --- the engine --------------------------------------------------------------------------------------------------

    def _answers(self, jobs: Sequence[Job]) -> list[RequestOutput]:
        """Run ``jobs`` to their ends, all at once."""
        waiting = dict(zip(map(str, self._numbers), jobs, strict=False))
        numbers = list(waiting)
        for number, job in waiting.items():
            self._engine.add_request(number, {"prompt_token_ids": job.prompt}, job.params.clone())
        answers: dict[str, RequestOutput] = {}
        while self._engine.has_unfinished_requests():
            for number, output in self._step():
                if output.finished:
                    answers[number] = output
                elif self._stopped(output, waiting[number].until):
                    self._engine.abort_request([number])
                    answers[number] = output
        return [answers[number] for number in numbers]

    def _step(self) -> Iterator[tuple[str, RequestOutput]]:
        for output in self._engine.step():
            yield output.request_id.split("-")[0], output  # type: ignore[misc]

    def _stopped(self, output: RequestOutput, until: tuple[str, ...]) -> bool:
        """Whether the answer holds a stop text already. Only its end is new; a token is a byte of it or more."""
        longest = max((len(text.encode()) for text in until), default=0)
        end = self._text(output.outputs[0].token_ids[-2 * longest - 8 :]) if until else ""
        return any(text in end for text in until)


def cut(text: str, until: Sequence[str]) -> str:
    """``text`` up to the first of the texts ``until``, whole where none is in it."""
    return text[: min((place for stop in until if (place := text.find(stop)) >= 0), default=len(text))]
