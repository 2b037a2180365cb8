"""vLLM's GPU worker with its phases timed."""

from __future__ import annotations

from vllm.v1.worker.gpu_worker import Worker

from workers.engine.worker import TimedWorker


class TimedGpuWorker(TimedWorker, Worker):
    pass
