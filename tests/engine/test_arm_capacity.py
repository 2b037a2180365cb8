"""Arms that run one plan keep residuals alike, whatever each of them runs it with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workers.engine.arm import _capacity
from workers.engine.settings import engine_config
from workers.probes.slots import Capacity
from workers.protocol import ROUNDING, ArmSpec, BatchPlan, Fault, Patch, PatchMode, Role, Trial

MODEL: dict[str, Any] = {"model": "tiny:llama"}
PROBE = {"dtype": "bfloat16", "tensor_parallel_size": 2, "compilation_config.pass_config.enable_sp": True}
ARMS: dict[str, dict[str, Any]] = {
    "probe": PROBE,
    "replicated": {"dtype": "bfloat16", "tensor_parallel_size": 2},
    "reference": {"dtype": "float32", "tensor_parallel_size": 1, "enforce_eager": True},
}


def capacity_of(role: str, plan: BatchPlan, models_dir: Path, trials: int = 0) -> Capacity:
    """What the arm tells its ranks."""
    noise = [Trial(name=f"{seed}", batch=plan, fault=Fault(kind=ROUNDING, seed=seed)) for seed in range(trials)]
    spec = ArmSpec(
        role=Role(role),
        key="k",
        engine=MODEL | ARMS[role],
        patches=dict.fromkeys(Patch, PatchMode.NATIVE),
        env={},
        batch=plan,
        taps=True,
        folder="folder",
        cache_root="cache",
        models_dir=str(models_dir),
        timeout_s=1.0,
        trials=noise,
    )
    return _capacity(engine_config(spec.engine, spec.models_dir), spec)


@pytest.mark.slow
@pytest.mark.parametrize("full_bytes", [1 << 30, 1 << 12], ids=["whole", "sketches"])
def test_arms_that_differ_in_dtype_ranks_and_trials_keep_residuals_alike(full_bytes: int, models_dir: Path) -> None:
    plan = BatchPlan(full_bytes=full_bytes)
    found = [capacity_of(role, plan, models_dir, trials) for trials, role in enumerate(ARMS)]
    assert found == [found[0]] * 3
    assert found[0].whole is (full_bytes > 1 << 12)
