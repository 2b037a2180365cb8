"""What an engine must not inherit: who asks, and what changes what it compiles."""

from __future__ import annotations

import pytest

from workers import environment
from workers.protocol import ROUNDING, ArmSpec, BatchPlan, Fault, Patch, PatchMode, Role, Trial


@pytest.mark.parametrize(
    "name",
    ["CI", "TORCHDYNAMO_DISABLE", "TORCHINDUCTOR_CACHE_DIR", "TORCH_LOGS", "VLLM_CACHE_ROOT", "RAY_ADDRESS"],
)
def test_a_cell_has_one_verdict_whoever_asks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    assert name not in environment.clean()


@pytest.mark.parametrize("name", ["PATH", "CIRCLE", "CUDA_VISIBLE_DEVICES", "HF_TOKEN"])
def test_what_the_machine_needs_is_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "kept")
    assert environment.clean()[name] == "kept"


def arm(*faults: Fault | None) -> ArmSpec:
    return ArmSpec(
        role=Role.REPLICATED,
        key="k",
        engine={},
        patches=dict.fromkeys(Patch, PatchMode.NATIVE),
        env={},
        batch=BatchPlan(),
        taps=True,
        folder="folder",
        cache_root="cache",
        models_dir="models",
        timeout_s=1.0,
        trials=[Trial(name=f"trial-{number}", batch=BatchPlan(), fault=fault) for number, fault in enumerate(faults)],
    )


@pytest.mark.parametrize(
    ("faults", "through"),
    [
        ([], "0"),
        ([None], "0"),
        ([Fault(kind=ROUNDING, seed=1), None, Fault(kind=ROUNDING, seed=2)], "0"),
        ([Fault(kind="zeroed")], "1"),
        ([Fault(kind=ROUNDING), Fault(kind="zeroed")], "1"),
    ],
    ids=["no trial", "again", "rounding errors", "a fault", "a fault after rounding errors"],
)
def test_the_residual_is_read_through_taps_only_where_a_fault_changes_it(
    faults: list[Fault | None], through: str
) -> None:
    """A rounding error is put into the weights: a graph that is measured must not differ from the one compared with."""
    assert environment.for_arm(arm(*faults), 1, "events")[environment.FAULTS] == through
