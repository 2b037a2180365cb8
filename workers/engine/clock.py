"""How long each step of an engine takes and when its first token comes, whoever drives it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from workers.engine.events import emit

if TYPE_CHECKING:
    from vllm.v1.engine.llm_engine import LLMEngine


def clock_steps(engine: LLMEngine) -> list[float]:
    """Have ``engine`` note the wall time of every ``step`` from now on, in seconds, in the list that is returned.

    With asynchronous scheduling a step returns before the model is through, and its time says little.
    """
    seconds: list[float] = []
    step = engine.step

    def clocked() -> Any:
        start = time.perf_counter()
        try:
            return step()
        finally:
            seconds.append(time.perf_counter() - start)

    engine.step = clocked  # type: ignore[method-assign]
    return seconds


def tell_first_token(engine: LLMEngine) -> None:
    """Have ``engine`` emit an event when its first token comes.

    What ``step`` returns does not tell: a request that wants its answer in one piece is silent until then. Where this
    version of vLLM has no such place to look, nothing is told.
    """
    processor: Any = getattr(engine, "output_processor", None)
    process = getattr(processor, "process_outputs", None)
    if process is None:
        return

    def watched(outputs: list[Any], *args: Any, **kwargs: Any) -> Any:
        if any(getattr(output, "new_token_ids", None) for output in outputs):
            emit("first-token")
            processor.process_outputs = process
        return process(outputs, *args, **kwargs)

    processor.process_outputs = watched
