"""One arm, in its own process: start vLLM, drive the batch plan, write what every rank knows."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workers import environment
from workers.engine import hooks, machines, toolchain
from workers.engine.clock import clock_steps, tell_first_token
from workers.engine.events import phase
from workers.probes import capacity
from workers.probes.slots import Capacity
from workers.protocol import ArmSpec, BatchPlan, Role
from workers.residual.taps import site_count

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.engine.llm_engine import LLMEngine


def run(spec: ArmSpec) -> None:
    """Run ``spec``, write ``result.json`` (and the taps) into its folder, and end this process.

    Of an engine that several machines run, that is what the machine does that leads. The others have ranks alone, and
    end with one of them, or when they are ended.
    """
    folder = Path(spec.folder)
    with phase("import"):
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.llm_engine import LLMEngine

        from workers.engine.settings import engine_config

        hooks.watch_main()
        if spec.role is Role.REFERENCE:
            _trust_no_compiler()
        if spec.toolchain is not None:
            toolchain.share(spec.toolchain)
    with phase("config"):
        config = engine_config(spec.engine | _arm_settings() | machines.settings(spec.portion), spec.models_dir)
    if spec.taps:
        # The ranks are started from this process and inherit its environment.
        os.environ[environment.CAPACITY] = capacity.to_text(_capacity(config, spec))
    if spec.portion is not None and not spec.portion.leads:
        machines.have_ranks(config)
        return
    with phase("start"):
        engine = LLMEngine.from_vllm_config(config, usage_context=UsageContext.LLM_CLASS, disable_log_stats=True)
    with phase("requests"):
        seconds = clock_steps(engine)
        tell_first_token(engine)
        answers = _answers(engine, spec)
    with phase("collect"):
        result = _collect(engine, spec) | answers | {"step_seconds": seconds}
        (folder / "result.json").write_text(json.dumps(result))
    # All is delivered. The supervisor ends the ranks at once, which vLLM's own shutdown takes seconds to do.
    os._exit(0)


def _trust_no_compiler() -> None:
    """Run eagerly what vLLM compiles beside the model too: its small functions are compiled where they are called.

    Said to this process, which is the one rank of a reference, and not by a variable: a fork has imported them.
    """
    import torch

    torch.compiler.set_stance("force_eager")


def _capacity(config: VllmConfig, spec: ArmSpec) -> Capacity:
    model = config.model_config
    plans = [spec.batch, *(trial.batch for trial in spec.trials)]
    sites = site_count(model.get_total_num_hidden_layers())
    return capacity.capacity(plans, config.scheduler_config.max_num_batched_tokens, sites, model.get_hidden_size())


def _arm_settings() -> dict[str, Any]:
    """The hooks of an arm. They are settings of the engine, but not of the cell."""
    from vllm.platforms import current_platform

    from workers.engine.worker import CPU_WORKER, GPU_WORKER

    on_cpu = current_platform.is_cpu()
    return {
        "worker_cls": CPU_WORKER if on_cpu else GPU_WORKER,
        "worker_extension_cls": "workers.engine.extension.ProbeExtension",
    }


def _answers(engine: LLMEngine, spec: ArmSpec) -> dict[str, Any]:
    """What the engine answers to the batch plan, or in its place to the tasks of an evaluation."""
    if spec.evaluation is None:
        return {"outputs": _drive(engine, spec)}
    from workers.engine.evaluate import evaluate

    return {"accuracy": evaluate(engine, spec.evaluation, Path(spec.folder))}


def _drive(engine: LLMEngine, spec: ArmSpec) -> list[dict[str, Any]]:
    if spec.taps:
        engine.collective_rpc("shardproof_record", args=(True,))
    outputs = _recorded(engine, spec.batch, spec, Path(spec.folder))
    for trial in spec.trials:
        folder = Path(spec.folder) / trial.name
        folder.mkdir(parents=True, exist_ok=True)
        fault = trial.fault.model_dump() if trial.fault else None
        engine.collective_rpc("shardproof_fault", args=(fault,))
        result: dict[str, Any] = {"outputs": _recorded(engine, trial.batch, spec, folder)}
        if trial.fault is not None:
            # A fault may change more than the residual.
            result["ranks"] = engine.collective_rpc("shardproof_counters")
        (folder / "result.json").write_text(json.dumps(result))
    if spec.trials:
        engine.collective_rpc("shardproof_fault", args=(None,))
    return outputs


def _recorded(engine: LLMEngine, plan: BatchPlan, spec: ArmSpec, folder: Path) -> list[dict[str, Any]]:
    """Drive ``plan`` and leave what the taps saw in ``folder``."""
    from workers.engine.drive import drive

    outputs = drive(engine, plan, engine.vllm_config.model_config.get_vocab_size())
    if spec.taps:
        engine.collective_rpc("shardproof_save_taps", args=(str(folder.relative_to(spec.folder)),))
    return outputs


def _collect(engine: LLMEngine, spec: ArmSpec) -> dict[str, Any]:
    from workers.patches import establish
    from workers.probes.describe import environment

    ranks = engine.collective_rpc("shardproof_counters")
    if spec.toolchain is not None:
        toolchain.remember(spec.toolchain, [rank["vectors_work"] for rank in ranks])
    return {
        "environment": environment().model_dump(),
        "kv_blocks": engine.vllm_config.cache_config.num_gpu_blocks,
        "patches": dict(establish(spec.patches)),
        "ranks": ranks,
    }
