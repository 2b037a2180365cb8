"""Taps: put where the residual is, they record it and change nothing; the census counts what is in the graph."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import vllm.distributed
import vllm.ir.ops  # noqa: F401  (registers vLLM's IR)
from safetensors.torch import load_file
from torch.fx.experimental.proxy_tensor import make_fx
from vllm.compilation.passes.inductor_pass import pass_context
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.config.utils import Range
from vllm.model_executor.layers.layernorm import RMSNorm

from workers.engine.internals import ALLOW_LIST, LOWERING, resolve
from workers.platforms.pass_manager import CpuPassManager
from workers.probes import eager, passes, recorder, taps
from workers.probes.passes import CountAfter, CountBefore, census, count
from workers.probes.recorder import Recorder
from workers.probes.taps import TapPass

HIDDEN, HEADS, TOKENS, EPSILON = 32, 4, 5, 1e-5
TAP = torch.ops.shardproof.tap.default

rms_norm: Any = torch.ops.vllm_ir.rms_norm.default
fused_add_rms_norm: Any = torch.ops.vllm_ir.fused_add_rms_norm.default


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """The recorder the taps write to, empty and enabled."""
    fresh = Recorder()
    fresh.enabled = True
    for module in (recorder, taps, eager):
        monkeypatch.setattr(module, "RECORDER", fresh)
    return fresh


class Weights:
    """Of a model of two layers: norms, and a matrix in place of attention and MLP."""

    def __init__(self) -> None:
        draw = torch.Generator().manual_seed(0)
        self.norms = [torch.rand(HIDDEN, generator=draw) + 0.5 for _ in range(5)]
        self.mixers = [torch.randn(HIDDEN, HIDDEN, generator=draw) / HIDDEN**0.5 for _ in range(4)]
        self.head_norm = torch.rand(HIDDEN // HEADS, generator=draw)
        self.input = torch.randn(TOKENS, HIDDEN, generator=draw)


WEIGHTS = Weights()


def model(x: torch.Tensor) -> Any:
    """Norm, mix, then four times norm with residual and mix. The last residual is read by nobody."""
    carrier, residual = rms_norm(x, WEIGHTS.norms[0], EPSILON), x
    for norm, mixer in zip(WEIGHTS.norms[1:], WEIGHTS.mixers, strict=True):
        carrier, residual = fused_add_rms_norm(torch.relu(carrier) @ mixer, residual, norm, EPSILON)
    return carrier


def true_residuals(x: torch.Tensor) -> list[torch.Tensor]:
    """By plain PyTorch: every sum of the branch's output and what was there before."""
    residuals = [x]
    for index, mixer in enumerate(WEIGHTS.mixers):
        carrier = rms_norm(residuals[-1], WEIGHTS.norms[index], EPSILON)
        residuals.append(torch.relu(carrier) @ mixer + residuals[-1])
    return residuals


def trace(function: Callable[..., Any], *inputs: torch.Tensor, symbolic: bool = True) -> torch.fx.GraphModule:
    """A graph such as post-grad passes see: ATen and vLLM's IR, fake tensors as values."""
    graph: torch.fx.GraphModule = make_fx(
        function, tracing_mode="symbolic" if symbolic else "fake", _allow_non_fake_inputs=True
    )(*inputs)
    return graph


def tapped(function: Callable[..., Any], *inputs: torch.Tensor) -> torch.fx.GraphModule:
    """``function`` as a graph with taps, cleaned as Inductor would."""
    module = trace(function, *inputs)
    TapPass(HIDDEN)(module.graph)
    module.graph.eliminate_dead_code()
    module.graph.lint()
    module.recompile()
    return module


def tap_nodes(module: torch.fx.GraphModule) -> list[Any]:
    return list(module.graph.find_nodes(op="call_function", target=TAP))


def one_step(record: Recorder, run: Callable[[], Any]) -> list[torch.Tensor]:
    record.begin(TOKENS)
    run()
    record.end()
    return record.steps[-1].sites


# --- where taps are put --------------------------------------------------------------------------------------------


def test_every_norm_of_the_residual_is_a_site_in_order() -> None:
    nodes = tap_nodes(tapped(model, WEIGHTS.input))
    assert [node.args[2:] for node in nodes] == [(index, 5) for index in range(5)]
    norms = [rms_norm] + [fused_add_rms_norm] * 4
    for node, norm in zip(nodes, norms, strict=True):
        carrier, residual = node.args[:2]
        if norm is rms_norm:
            assert carrier.target is rms_norm
            assert residual is carrier.args[0]
        else:
            assert carrier.args[0] is residual.args[0]
            assert carrier.args[0].target is fused_add_rms_norm
            assert [item.target for item in (carrier, residual)] == [operator.getitem] * 2
            assert (carrier.args[1], residual.args[1]) == (0, 1)


def test_whoever_read_the_carrier_reads_the_tap() -> None:
    module = tapped(model, WEIGHTS.input)
    for node in tap_nodes(module):
        assert set(node.args[0].users) == {node}
        assert len(node.users) == 1
    relus: list[Any] = list(module.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default))
    assert [node.args[0].target for node in relus] == [TAP] * 4
    output: Any = module.graph.output_node()
    assert output.args[0].target is TAP


def test_tap_has_the_value_of_its_carrier() -> None:
    for node in tap_nodes(tapped(model, WEIGHTS.input)):
        value, carrier = node.meta["val"], node.args[0].meta["val"]
        assert value.shape == carrier.shape
        assert value.dtype == carrier.dtype
        assert value.fake_mode is carrier.fake_mode


def test_norms_of_heads_are_passed_over() -> None:
    def with_head_norm(x: torch.Tensor) -> Any:
        carrier = rms_norm(x, WEIGHTS.norms[0], EPSILON)
        heads = rms_norm(carrier.view(-1, HEADS, HIDDEN // HEADS), WEIGHTS.head_norm, EPSILON)
        flat = rms_norm(carrier.view(-1, HIDDEN // HEADS), WEIGHTS.head_norm, EPSILON)
        return heads.reshape(-1, HIDDEN) + flat.reshape(-1, HIDDEN)

    assert len(list(trace(with_head_norm, WEIGHTS.input).graph.find_nodes(op="call_function", target=rms_norm))) == 3
    assert len(tap_nodes(tapped(with_head_norm, WEIGHTS.input))) == 1


def test_graph_without_norms_gets_no_tap() -> None:
    assert tap_nodes(tapped(lambda x: x + 1, WEIGHTS.input)) == []


def test_inductor_may_fall_back_for_the_tap() -> None:
    TapPass(HIDDEN)
    assert "shardproof::tap" in resolve(f"{LOWERING}:{ALLOW_LIST}", "test it")


# --- what they record ----------------------------------------------------------------------------------------------


def test_output_is_bitwise_what_it_was(record: Recorder) -> None:
    expected = trace(model, WEIGHTS.input)(WEIGHTS.input)
    found: list[torch.Tensor] = []
    one_step(record, lambda: found.append(tapped(model, WEIGHTS.input)(WEIGHTS.input)))
    assert torch.equal(found[0], expected)


def test_recorded_residual_is_the_true_one_also_where_nobody_reads_it(record: Recorder) -> None:
    module = tapped(model, WEIGHTS.input)
    sites = one_step(record, lambda: module(WEIGHTS.input))
    expected = true_residuals(WEIGHTS.input)
    assert len(sites) == len(expected) == 5
    for site, truth in zip(sites, expected, strict=True):
        assert torch.equal(site, truth)
    assert not torch.equal(sites[-1], sites[-2]), "the sites differ, so a wrong one would show"


def test_without_a_tap_the_last_residual_is_not_even_in_the_graph() -> None:
    module = trace(model, WEIGHTS.input)
    module.graph.eliminate_dead_code()
    last = list(module.graph.find_nodes(op="call_function", target=fused_add_rms_norm))[-1]
    assert [user.args[1] for user in last.users] == [0]


def test_graph_serves_other_token_counts(record: Recorder) -> None:
    module = tapped(model, WEIGHTS.input)
    longer = torch.cat([WEIGHTS.input, WEIGHTS.input[:2]])
    sites = one_step(record, lambda: module(longer))
    assert [tuple(site.shape) for site in sites] == [(TOKENS + 2, HIDDEN)] * 5
    assert torch.equal(sites[3], true_residuals(longer)[3])


def test_outside_of_a_step_nothing_is_kept(record: Recorder) -> None:
    module = tapped(model, WEIGHTS.input)
    module(WEIGHTS.input)
    assert record.steps == []
    record.enabled = False
    record.begin(TOKENS)
    module(WEIGHTS.input)
    record.end()
    assert record.steps == []


def test_what_is_recorded_is_a_copy(record: Recorder) -> None:
    x = WEIGHTS.input.clone()
    sites = one_step(record, lambda: tapped(model, x)(x))
    x.zero_()
    assert torch.equal(sites[0], WEIGHTS.input)


def test_tap_gives_a_copy_of_the_carrier_and_keeps_to_its_declaration() -> None:
    carrier, residual = torch.randn(3, HIDDEN), torch.randn(3, HIDDEN)
    torch.library.opcheck(TAP, (carrier, residual, 0, 1))
    copy = TAP(carrier, residual, 0, 1)
    assert torch.equal(copy, carrier)
    assert copy.data_ptr() != carrier.data_ptr()


# --- several graphs in one step --------------------------------------------------------------------------------------


def layer(carrier: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A piece of a model of equal layers: all of them share the code of this one."""
    for norm, mixer in zip(WEIGHTS.norms[:2], WEIGHTS.mixers[:2], strict=True):
        carrier, residual = fused_add_rms_norm(carrier @ mixer, residual, norm, EPSILON)
    return carrier, residual


def test_pieces_that_share_their_code_add_up(record: Recorder) -> None:
    first = tapped(lambda x: rms_norm(x, WEIGHTS.norms[0], EPSILON), WEIGHTS.input)
    piece = tapped(layer, WEIGHTS.input, WEIGHTS.input)
    expected = [WEIGHTS.input]

    def run() -> None:
        carrier, residual = first(WEIGHTS.input), WEIGHTS.input
        for _ in range(3):
            carrier, residual = piece(carrier, residual)
            expected.append(residual)

    sites = one_step(record, run)
    assert len(sites) == 1 + 3 * 2
    for site, truth in zip(sites[::2], expected, strict=True):
        assert torch.equal(site, truth)
    assert len(one_step(record, run)) == 7, "the next step starts anew"


def rows(number: float) -> torch.Tensor:
    return torch.full((1, 2), number)


@pytest.mark.parametrize(
    "fired",
    [
        [(1, 2)],
        [(0, 2), (0, 2)],
        [(0, 2), (1, 2), (1, 2)],
        [(0, 1), (1, 1)],
        [(0, 3), (2, 3)],
    ],
    ids=["not from the start", "twice", "not from the start of the next", "beyond the graph", "left out"],
)
def test_tap_out_of_order_is_an_error(fired: list[tuple[int, int]]) -> None:
    record = Recorder()
    record.enabled = True
    record.begin(1)
    for index, size in fired[:-1]:
        record.record(rows(index), index, size)
    with pytest.raises(RuntimeError, match=r"tap \d of \d fired out of order at site \d"):
        record.record(rows(0), *fired[-1])


def test_a_step_that_broke_off_does_not_disturb_the_next() -> None:
    record = Recorder()
    record.enabled = True
    record.begin(1)
    record.record(rows(0), 0, 2)
    record.begin(4)
    for index in range(2):
        record.record(rows(index), index, 2)
    record.end()
    record.end()
    assert [(step.tokens, len(step.sites)) for step in record.steps] == [(4, 2)]


def test_saved_steps_can_be_read_back(tmp_path: Path) -> None:
    record = Recorder()
    record.enabled = True
    for tokens in (3, 4):
        record.begin(tokens)
        record.record(torch.full((2, tokens), 1.0).t(), 0, 2)
        record.record(rows(tokens), 1, 2)
        record.end()
    record.save(tmp_path, 1)
    assert json.loads((tmp_path / "taps-rank1.json").read_text()) == {
        "steps": [{"tokens": 3, "sites": 2}, {"tokens": 4, "sites": 2}]
    }
    tensors = load_file(tmp_path / "taps-rank1.safetensors")
    assert sorted(tensors) == ["0/0", "0/1", "1/0", "1/1"]
    assert torch.equal(tensors["1/1"], rows(4))
    assert tensors["0/0"].shape == (3, 2)


# --- eager ---------------------------------------------------------------------------------------------------------


class EagerModel(torch.nn.Module):
    """``model`` with vLLM's modules, and a norm of heads as Qwen has it."""

    def __init__(self) -> None:
        super().__init__()
        self.norms: Any = torch.nn.ModuleList(RMSNorm(HIDDEN, EPSILON) for _ in WEIGHTS.norms)
        self.head_norm: Any = RMSNorm(HIDDEN // HEADS, EPSILON)
        norms: Any = self.norms
        for norm, weight in zip(norms, WEIGHTS.norms, strict=True):
            norm.weight.data.copy_(weight)

    def forward(self, x: torch.Tensor) -> Any:
        carrier, residual = self.norms[0](x), x
        self.head_norm(carrier.view(-1, HIDDEN // HEADS))
        self.head_norm(carrier.view(-1, HEADS, HIDDEN // HEADS))
        for norm, mixer in zip(self.norms[1:], WEIGHTS.mixers, strict=True):
            carrier, residual = norm(torch.relu(carrier) @ mixer, residual)
        return carrier


@pytest.fixture
def eager_model() -> Iterator[EagerModel]:
    with set_current_vllm_config(VllmConfig()), torch.no_grad():
        yield EagerModel()


def test_eager_hooks_record_the_sites_of_the_graph(record: Recorder, eager_model: EagerModel) -> None:
    compiled = one_step(record, lambda: tapped(model, WEIGHTS.input)(WEIGHTS.input))
    eager.install(eager_model, HIDDEN)
    by_hooks = one_step(record, lambda: eager_model(WEIGHTS.input.clone()))
    assert len(by_hooks) == len(compiled) == 5
    for hooked, site in zip(by_hooks, compiled, strict=True):
        assert torch.equal(hooked, site)


def test_eager_model_computes_what_it_did(record: Recorder, eager_model: EagerModel) -> None:
    before = eager_model(WEIGHTS.input.clone())
    eager.install(eager_model, HIDDEN)
    assert torch.equal(eager_model(WEIGHTS.input.clone()), before)
    assert record.steps == []


def test_model_without_hooks_records_nothing(record: Recorder, eager_model: EagerModel) -> None:
    assert one_step(record, lambda: eager_model(WEIGHTS.input.clone())) == []


# --- census --------------------------------------------------------------------------------------------------------


def collectives(**numbers: int) -> torch.fx.Graph:
    """A graph with so many of each collective; nothing of it is ever run."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    rest = {"all_reduce": ("tp",), "reduce_scatter": (0, 2, "tp"), "all_gather": (0, 2, "tp")}
    for name, number in numbers.items():
        for _ in range(number):
            x = graph.create_node("call_function", getattr(torch.ops.vllm, name).default, (x, *rest[name]))
    x = graph.create_node("call_function", torch.ops.aten.relu.default, (x,))
    graph.output(x)
    return graph


class SpPass:
    """As much of vLLM's pass as the census looks at. ``matched_count`` is left from a graph before."""

    def __init__(self, first: int = 1) -> None:
        self.first = first
        self.matched_count = 99

    def is_applicable_for_range(self, compile_range: Any) -> bool:
        return bool(compile_range.start >= self.first)


@pytest.fixture
def fresh_census(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "_census", [])


@pytest.mark.parametrize("name", ["all_reduce", "reduce_scatter", "all_gather"])
def test_count_sees_one_collective_and_no_other(name: str) -> None:
    graph = collectives(all_reduce=3, reduce_scatter=2, all_gather=1)
    assert count(graph, name) == {"all_reduce": 3, "reduce_scatter": 2, "all_gather": 1}[name]
    assert count(collectives(), name) == 0


@pytest.mark.usefixtures("fresh_census")
def test_census_has_the_graph_before_and_after_the_pass() -> None:
    sp_pass = SpPass()
    with pass_context(Range(start=1, end=64)):
        CountBefore(sp_pass)(collectives(all_reduce=5))
        sp_pass.matched_count = 4
        CountAfter(sp_pass)(collectives(all_reduce=1, reduce_scatter=4, all_gather=4))
    assert census() == [
        {
            "compile_range": (1, 64),
            "applicable": True,
            "all_reduce_before": 5,
            "all_reduce_after": 1,
            "reduce_scatter_after": 4,
            "all_gather_after": 4,
            "claimed": 4,
        }
    ]


@pytest.mark.usefixtures("fresh_census")
def test_a_pass_that_does_not_run_claims_nothing_of_the_graph_before() -> None:
    sp_pass = SpPass(first=8)
    for start in (8, 1):
        with pass_context(Range(start=start, end=64)):
            CountBefore(sp_pass)(collectives(all_reduce=2))
            if start == 8:
                sp_pass.matched_count = 2
            CountAfter(sp_pass)(collectives(reduce_scatter=2) if start == 8 else collectives(all_reduce=2))
    assert [(entry["applicable"], entry["claimed"], entry["all_reduce_after"]) for entry in census()] == [
        (True, 2, 0),
        (False, 0, 2),
    ]


@pytest.mark.usefixtures("fresh_census")
def test_without_the_pass_nothing_is_applicable_or_claimed() -> None:
    with pass_context(Range(start=1, end=64)):
        CountBefore(None)(collectives(all_reduce=2))
        CountAfter(None)(collectives(all_reduce=2))
    (entry,) = census()
    assert (entry["applicable"], entry["claimed"], entry["all_reduce_before"]) == (False, None, 2)


@pytest.mark.parametrize(("taps_wanted", "last"), [("1", TapPass), ("0", CountAfter)])
def test_our_passes_stand_around_vllms(taps_wanted: str, last: type, monkeypatch: pytest.MonkeyPatch) -> None:
    SequenceParallelismPass = type("SequenceParallelismPass", (SpPass,), {})
    manager: Any = SimpleNamespace(passes=[object(), SequenceParallelismPass()], add=lambda p: manager.passes.append(p))
    config: Any = SimpleNamespace(model_config=SimpleNamespace(get_hidden_size=lambda: HIDDEN))
    monkeypatch.setenv("SHARDPROOF_TAPS", taps_wanted)
    passes.install(manager, config)
    assert isinstance(manager.passes[0], CountBefore)
    assert isinstance(manager.passes[-1], last)
    assert manager.passes[0].sp_pass is manager.passes[2]


def test_this_machine_uses_our_pass_manager() -> None:
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        pytest.skip("vLLM's own manager has the pass on this platform")
    assert current_platform.get_pass_manager_cls() == f"{CpuPassManager.__module__}.{CpuPassManager.__qualname__}"


def test_a_foreign_pass_manager_gets_our_passes_after_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    class Manager:
        def configure(self, config: object) -> None:
            seen.append(f"configured with {config}")

    def install(manager: object, config: object) -> None:
        seen.append(f"installed in {type(manager).__name__}")

    monkeypatch.setattr(passes, "install", install)
    passes.hook(Manager)
    Manager().configure("x")
    assert seen == ["configured with x", "installed in Manager"]
