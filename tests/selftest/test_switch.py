"""Faults in weights, in what the runner believes, between pipeline stages and in the recording itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import vllm.v1.worker.utils
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.layernorm import RMSNorm

from workers.patches.full_graph_sp import HELPER_NAME
from workers.probes.recorder import RECORDER, Position
from workers.probes.slots import Capacity
from workers.protocol import Fault
from workers.residual.taps import NoTaps, TapSet, load
from workers.selftest.faults import STATE
from workers.selftest.switch import ENGINE_FAULTS, switch

HIDDEN = 6
TOKENS = 4


class Model(torch.nn.Module):
    """Two norms; hands on what it is given."""

    def __init__(self) -> None:
        super().__init__()
        with set_current_vllm_config(VllmConfig()):
            self.norms = torch.nn.ModuleList([RMSNorm(HIDDEN), RMSNorm(HIDDEN)])

    def forward(self, *, intermediate_tensors: Any = None) -> Any:
        return intermediate_tensors


class Crossing:
    """As vLLM's ``IntermediateTensors``."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self.tensors = tensors


@pytest.fixture
def worker() -> Iterator[Any]:
    model = Model()
    STATE.rank = 0
    yield SimpleNamespace(get_model=lambda: model)
    switch(None, None)
    RECORDER.__init__()  # type: ignore[misc]


def test_a_fault_of_another_rank_changes_nothing(worker: Any, tmp_path: Path) -> None:
    helper = getattr(vllm.v1.worker.utils, HELPER_NAME)
    weights = [norm.weight.clone() for norm in worker.get_model().norms]
    for kind in ENGINE_FAULTS:
        switch(worker, Fault(kind=kind, site=0, rank=1))
        assert getattr(vllm.v1.worker.utils, HELPER_NAME) is helper
        assert "save" not in vars(RECORDER)
        assert not worker.get_model()._forward_pre_hooks
        assert all(map(torch.equal, weights, [norm.weight for norm in worker.get_model().norms]))


def test_one_number_of_one_norm_and_back(worker: Any) -> None:
    first, second = worker.get_model().norms
    kept = second.weight.clone()
    switch(worker, Fault(kind="norm-weight", site=1, rank=0))
    assert int((second.weight != kept).sum()) == 1
    assert torch.equal(first.weight, torch.ones(HIDDEN))
    switch(worker, None)
    assert torch.equal(second.weight, kept)


def test_what_the_runner_believes_is_inverted_and_put_right(worker: Any) -> None:
    passes, parallel = SimpleNamespace(enable_sp=False), SimpleNamespace(tensor_parallel_size=2)
    config = SimpleNamespace(compilation_config=SimpleNamespace(pass_config=passes), parallel_config=parallel)
    module = sys.modules["vllm.v1.worker.utils"]
    assert getattr(module, HELPER_NAME)(config, 8) is False
    switch(worker, Fault(kind="belief-inverted"))
    assert getattr(module, HELPER_NAME)(config, 8) is True
    switch(worker, None)
    assert getattr(module, HELPER_NAME)(config, 8) is False


def crossed(worker: Any, step: int) -> dict[str, torch.Tensor]:
    found = worker.get_model()(intermediate_tensors=Crossing(given(step)))
    assert isinstance(found, Crossing)
    return found.tensors


def given(step: int) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(step)
    return {name: torch.randn(TOKENS, HIDDEN, generator=draw) for name in ("hidden_states", "residual")}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("kind", [kind for kind in ENGINE_FAULTS if kind.startswith("boundary")])
def test_what_a_stage_is_given_changes(worker: Any, kind: str) -> None:
    switch(worker, Fault(kind=kind, rank=0))
    crossed(worker, 1)
    assert not same(crossed(worker, 2), given(2))
    switch(worker, None)
    assert same(crossed(worker, 3), given(3))


def test_tensors_exchanged_have_the_same_sum(worker: Any) -> None:
    switch(worker, Fault(kind="boundary-tensors-exchanged", rank=0))
    found, right = crossed(worker, 1), given(1)
    assert torch.equal(found["hidden_states"] + found["residual"], right["hidden_states"] + right["residual"])


def recorded(worker: Any, folder: Path, fault: Fault | None) -> TapSet:
    """Two steps of two sites on one rank."""
    RECORDER.capacity, RECORDER.position, RECORDER.enabled = Capacity(TOKENS, True), Position(), True
    switch(worker, fault)
    for step in range(2):
        RECORDER.begin(TOKENS)
        RECORDER.forward(TOKENS)
        for site in range(2):
            RECORDER.record(given(step)["residual"] + site, site, 2)
        RECORDER.end()
    RECORDER.save(folder, 0)
    return load(folder, 1)


def test_a_recording_as_it_is(worker: Any, tmp_path: Path) -> None:
    found = recorded(worker, tmp_path, None)
    assert torch.equal(torch.as_tensor(found.at(0, 1, 1)), given(1)["residual"] + 1)


def test_nothing_is_written(worker: Any, tmp_path: Path) -> None:
    with pytest.raises(NoTaps):
        recorded(worker, tmp_path, Fault(kind="nothing-written"))
    assert RECORDER.steps == []


def test_the_last_step_is_left_out(worker: Any, tmp_path: Path) -> None:
    assert recorded(worker, tmp_path, Fault(kind="step-left-out")).tokens == [TOKENS]


def test_a_site_is_left_out(worker: Any, tmp_path: Path) -> None:
    found = recorded(worker, tmp_path, Fault(kind="site-left-out", site=1))
    assert found.at(0, 0, 1) is None
    assert found.at(0, 0, 0) is not None


@pytest.mark.parametrize(("kind", "rows"), [("row-left-out", TOKENS - 1), ("row-too-many", TOKENS + 1)])
def test_rows_of_one_site(worker: Any, tmp_path: Path, kind: str, rows: int) -> None:
    found = recorded(worker, tmp_path, Fault(kind=kind, site=1))
    assert [len(torch.as_tensor(found.at(0, 0, site))) for site in range(2)] == [TOKENS, rows]


def test_tokens_in_another_order_at_every_site(worker: Any, tmp_path: Path) -> None:
    found = recorded(worker, tmp_path, Fault(kind="tokens-permuted"))
    for site in range(2):
        assert torch.equal(torch.as_tensor(found.at(0, 0, site)), (given(0)["residual"] + site).flip(0))
