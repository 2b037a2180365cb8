"""How long each step of an engine takes, whoever drives it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

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
