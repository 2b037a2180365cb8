"""What an engine must not inherit: who asks, and what changes what it compiles."""

from __future__ import annotations

import pytest

from workers import environment


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
