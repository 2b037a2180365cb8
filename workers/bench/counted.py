"""What the workers of vLLM's startup benchmark leave behind as proof: vLLM's own compilation counters, rank by rank."""

from __future__ import annotations

import json
import os
from typing import Any

from workers.environment import COUNTED

CPU_WORKER = "workers.bench.counted_cpu.CountedCpuWorker"
GPU_WORKER = "workers.bench.counted_gpu.CountedGpuWorker"


class CountedWorker:
    """Mixed in before a vLLM worker class. All that differs is a line of JSON in the file that ``COUNTED`` names.

    ``{start, rank, counters}``; ``start`` is the process of the engine, so each start has a number of its own.
    """

    rank: int

    def compile_or_warm_up_model(self) -> Any:
        """The parent's. When it is through all is compiled, or loaded."""
        from vllm.compilation.counter import compilation_counter

        found = super().compile_or_warm_up_model()  # type: ignore[misc]
        told = {"start": os.getppid(), "rank": self.rank, "counters": vars(compilation_counter)}
        with open(os.environ[COUNTED], "a") as file:
            file.write(json.dumps(told) + "\n")
        return found
