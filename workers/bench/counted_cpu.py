"""vLLM's CPU worker, counted."""

from __future__ import annotations

from vllm.v1.worker.cpu_worker import CPUWorker

from workers.bench.counted import CountedWorker


class CountedCpuWorker(CountedWorker, CPUWorker):
    pass
