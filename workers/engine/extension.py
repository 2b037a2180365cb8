"""Questions put to every rank of a running engine, by ``collective_rpc``. Each answer is plain JSON."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

from workers import environment
from workers.engine import hooks, internals
from workers.probes.recorder import RECORDER
from workers.probes.rounding import ROUNDING_ERROR
from workers.protocol import ROUNDING, Fault
from workers.selftest.faults import STATE
from workers.selftest.switch import switch


class ProbeExtension:
    """vLLM's ``worker_extension_cls``: its methods join the worker of each rank."""

    rank: int
    held_before: list[str]

    def shardproof_record(self, enabled: bool) -> None:
        """Start or stop keeping what the taps see."""
        from workers.probes import eager

        if enabled and self.vllm_config.model_config.enforce_eager:  # type: ignore[attr-defined]
            eager.install(self.get_model(), self.vllm_config.model_config.get_hidden_size())  # type: ignore[attr-defined]
        RECORDER.enabled = enabled

    def shardproof_save_taps(self, trial: str) -> int:
        """Write this rank's taps into the folder ``trial`` below its arm's; the number of steps written.

        Each machine of an engine has a folder of its own for the arm.
        """
        steps = len(RECORDER.steps)
        folder = Path(os.environ[environment.SPANS]) / trial
        folder.mkdir(parents=True, exist_ok=True)
        RECORDER.save(folder, self.rank)
        return steps

    def shardproof_fault(self, fault: dict[str, Any] | None) -> None:
        """Switch ``fault`` on, or whatever is on off."""
        from vllm.distributed import get_tp_group

        asked = None if fault is None else Fault.model_validate(fault)
        ROUNDING_ERROR.restore()
        if asked is not None and asked.kind == ROUNDING:
            ROUNDING_ERROR.apply(self.get_model(), asked.seed)  # type: ignore[attr-defined]
            asked = None
        group = get_tp_group()
        STATE.rank = group.rank_in_group
        STATE.gather = lambda value: list(group.all_gather(value, dim=0).chunk(group.world_size))
        STATE.set(asked)
        switch(self, asked)

    def shardproof_counters(self) -> dict[str, Any]:
        """vLLM's counters, fallbacks, graph census, guards, threads, peak memory of this rank, what was not timed."""
        import torch
        from vllm.compilation.counter import compilation_counter

        from workers.probes import fallback, norms
        from workers.probes.guards import check_guards
        from workers.probes.passes import census

        return {
            "rank": self.rank,
            "counters": dict(vars(compilation_counter)),
            "held_before": self.held_before,
            "compiled": internals.compiled_here(),
            "not_timed": list(hooks.MISSING),
            "fallback": fallback.PROBE.told(self.rank).model_dump(),
            "census": census(),
            "norms": norms.hashes(self.get_model()),  # type: ignore[attr-defined]
            "guards": [guard.model_dump() for guard in check_guards()],
            "vectors_work": _vectors_work(),
            "partitions": internals.partitions(),
            "threads": torch.get_num_threads(),
            "cores": sorted(os.sched_getaffinity(0)),
            "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "device_peak_bytes": _device_peak(),
        }


def _device_peak() -> int | None:
    """The most that PyTorch has taken of this rank's accelerator; ``None`` where there is none."""
    import torch

    if not torch.cuda.is_available():
        return None
    return int(torch.cuda.max_memory_reserved())


def _vectors_work() -> bool:
    """Only a rank that compiled has tried; to try now would take seconds."""
    from vllm.compilation.counter import compilation_counter

    return compilation_counter.num_inductor_compiles > 0 and internals.all_vectors_work()
