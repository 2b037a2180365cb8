"""One arm, in its own process: start vLLM, drive the batch plan, write what every rank knows."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workers.engine.events import phase
from workers.protocol import ArmSpec, BatchPlan

if TYPE_CHECKING:
    from vllm.v1.engine.llm_engine import LLMEngine


def run(spec: ArmSpec) -> None:
    """Run ``spec``, write ``result.json`` (and the taps) into its folder, and end this process."""
    folder = Path(spec.folder)
    with phase("import"):
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.llm_engine import LLMEngine

        from workers.engine.settings import engine_config
    with phase("config"):
        config = engine_config(spec.engine | _arm_settings(spec.taps), spec.models_dir)
    with phase("start"):
        engine = LLMEngine.from_vllm_config(config, usage_context=UsageContext.LLM_CLASS, disable_log_stats=True)
    with phase("requests"):
        outputs = _drive(engine, spec)
    with phase("collect"):
        result = _collect(engine, spec) | {"outputs": outputs}
        (folder / "result.json").write_text(json.dumps(result))
    # All is delivered. The supervisor ends the ranks at once, which vLLM's own shutdown takes seconds to do.
    os._exit(0)


def _arm_settings(taps: bool) -> dict[str, Any]:
    """The hooks of an arm. They are settings of the engine, but not of the cell."""
    from vllm.platforms import current_platform

    from workers.engine.worker import CPU_WORKER, GPU_WORKER

    on_cpu = current_platform.is_cpu()
    hooks = {
        "worker_cls": CPU_WORKER if on_cpu else GPU_WORKER,
        "worker_extension_cls": "workers.engine.extension.ProbeExtension",
    }
    # A replayed CUDA graph does not call the taps.
    return hooks | ({"compilation_config.cudagraph_mode": "NONE"} if taps and not on_cpu else {})


def _drive(engine: LLMEngine, spec: ArmSpec) -> list[dict[str, Any]]:
    if spec.taps:
        engine.collective_rpc("shardproof_record", args=(True,))
    outputs = _recorded(engine, spec.batch, spec, Path(spec.folder))
    for trial in spec.trials:
        folder = Path(spec.folder) / trial.name
        folder.mkdir(parents=True, exist_ok=True)
        fault = trial.fault.model_dump() if trial.fault else None
        engine.collective_rpc("shardproof_fault", args=(fault,))
        answers = _recorded(engine, trial.batch, spec, folder)
        (folder / "result.json").write_text(json.dumps({"outputs": answers}))
    return outputs


def _recorded(engine: LLMEngine, plan: BatchPlan, spec: ArmSpec, folder: Path) -> list[dict[str, Any]]:
    """Drive ``plan`` and leave what the taps saw in ``folder``."""
    from workers.engine.drive import drive

    outputs = drive(engine, plan, engine.vllm_config.model_config.get_vocab_size())
    if spec.taps:
        engine.collective_rpc("shardproof_save_taps", args=(str(folder),))
    return outputs


def _collect(engine: LLMEngine, spec: ArmSpec) -> dict[str, Any]:
    from workers.patches import establish
    from workers.probes.describe import environment

    return {
        "environment": environment().model_dump(),
        "patches": dict(establish(spec.patches)),
        "ranks": engine.collective_rpc("shardproof_counters"),
    }
