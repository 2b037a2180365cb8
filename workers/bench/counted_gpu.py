"""vLLM's GPU worker, counted."""

from __future__ import annotations

from vllm.v1.worker.gpu_worker import Worker

from workers.bench.counted import CountedWorker


class CountedGpuWorker(CountedWorker, Worker):
    pass
