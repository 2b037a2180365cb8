"""vLLM's CPU worker with its phases timed."""

from __future__ import annotations

import os

from vllm.v1.worker.cpu_worker import CPUWorker

from workers.engine import openmp
from workers.engine.worker import TimedWorker
from workers.processes import note_segments


class TimedCpuWorker(TimedWorker, CPUWorker):
    def init_device(self) -> None:
        openmp.take_over()
        super().init_device()
        # vLLM names the segments of its CPU collectives after this; they outlive a process that is killed.
        note_segments(os.environ["VLLM_DIST_IDENT"])
