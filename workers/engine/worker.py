"""The worker of an arm: vLLM's worker for this machine, with its phases timed and its steps announced to the recorder.

``worker_cls`` is an engine setting; the arm sets it to the class here that fits the device. The probes that answer
questions after the fact are in ``workers.engine.extension``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from workers import environment
from workers.engine import hooks, internals
from workers.engine.events import emit, phase, process_started
from workers.engine.steps import believed_scattered, order_of, position, requests_of
from workers.probes import boundary, capacity, taps
from workers.probes.recorder import RECORDER
from workers.selftest.faults import STATE

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import SchedulerOutput

CPU_WORKER = "workers.engine.worker_cpu.TimedCpuWorker"
GPU_WORKER = "workers.engine.worker_gpu.TimedGpuWorker"


class TimedWorker:
    """Mixed in before a vLLM worker class. Each method is the parent's, inside a phase."""

    rank: int
    held_before: list[str]
    vllm_config: VllmConfig
    model_runner: Any
    get_model: Callable[[], torch.nn.Module]

    def init_device(self) -> None:
        self.held_before = internals.compiled_here()
        hooks.watch_rank()
        emit("rank", rank=self.rank, started=process_started())
        with phase("init_device", self.rank):
            super().init_device()  # type: ignore[misc]

    def load_model(self, **kwargs: Any) -> None:
        with phase("load_model", self.rank):
            super().load_model(**kwargs)  # type: ignore[misc]
        if taps.wanted():
            self._prepare_taps()

    def _prepare_taps(self) -> None:
        """Before the first forward pass: taps fire in warm-ups too, and a CUDA graph captures what they do."""
        RECORDER.capacity = capacity.from_text(os.environ[environment.CAPACITY])
        RECORDER.position = position(self.vllm_config)
        boundary.install(self.get_model())

    def determine_available_memory(self) -> int:
        with phase("profile", self.rank):
            return int(super().determine_available_memory())  # type: ignore[misc]

    def initialize_from_config(self, kv_cache_config: Any) -> None:
        with phase("kv_cache", self.rank):
            super().initialize_from_config(kv_cache_config)  # type: ignore[misc]

    def compile_or_warm_up_model(self) -> Any:
        with phase("warm_up", self.rank):
            return super().compile_or_warm_up_model()  # type: ignore[misc]

    def execute_model(self, scheduler_output: SchedulerOutput) -> Any:
        tokens = scheduler_output.total_num_scheduled_tokens
        if tokens == 0:
            return super().execute_model(scheduler_output)  # type: ignore[misc]
        RECORDER.begin(tokens, requests_of(scheduler_output))
        STATE.begin_step()
        try:
            output = super().execute_model(scheduler_output)  # type: ignore[misc]
        except BaseException as error:
            RECORDER.abandon()
            emit("error", name="execute_model", rank=self.rank, message=f"{type(error).__name__}: {error}"[:2000])
            raise
        step = RECORDER.end(order_of(self.model_runner))
        if step is not None:
            step.believed = believed_scattered(self.vllm_config, step.padded)
        return output
