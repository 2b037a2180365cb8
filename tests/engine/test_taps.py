"""Taps: put where the residual is, they record it and change nothing."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.layernorm import RMSNorm

from workers import environment
from workers.engine.internals import ALLOW_LIST, LOWERING, resolve
from workers.probes import eager
from workers.probes.recorder import Recorder
from workers.probes.taps import OPERATIONS, TapPass, residual_sites
from workers.residual.sketch import sketch

from .graphs import (
    EPSILON,
    FIRST,
    HEADS,
    HIDDEN,
    LAST,
    TAP,
    TAP_GATHERED,
    TOKENS,
    WEIGHTS,
    all_gather,
    all_reduce,
    fused_add_rms_norm,
    model,
    one_step,
    reduce_scatter,
    rms_norm,
    tap_nodes,
    tapped,
    trace,
    true_residuals,
)

# --- where taps are put --------------------------------------------------------------------------------------------


def test_every_norm_of_the_residual_is_a_site_in_order() -> None:
    nodes = tap_nodes(tapped(model, WEIGHTS.input))
    assert [node.args[2:] for node in nodes] == [(index, 5, [FIRST, LAST], False) for index in range(5)]
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


def test_inductor_may_fall_back_for_every_tap() -> None:
    TapPass(HIDDEN)
    assert {f"shardproof::{name}" for name in OPERATIONS} <= set(resolve(f"{LOWERING}:{ALLOW_LIST}", "test it"))


def sharded(x: torch.Tensor) -> Any:
    """As SP leaves a layer: the norms work on a part; what they give is gathered, computed with and scattered."""
    part = reduce_scatter(x)
    gathered = all_gather(rms_norm(part, WEIGHTS.norms[0], EPSILON))
    mixed = reduce_scatter(torch.relu(gathered) @ WEIGHTS.mixers[0])
    carrier, _ = fused_add_rms_norm(mixed, part, WEIGHTS.norms[1], EPSILON)
    return all_gather(carrier) @ WEIGHTS.mixers[1]


def replicated(x: torch.Tensor) -> Any:
    """The same without SP."""
    whole = all_reduce(x)
    carrier = rms_norm(whole, WEIGHTS.norms[0], EPSILON)
    mixed = all_reduce(torch.relu(carrier) @ WEIGHTS.mixers[0])
    carrier, _ = fused_add_rms_norm(mixed, whole, WEIGHTS.norms[1], EPSILON)
    return carrier @ WEIGHTS.mixers[1]


def mixed_layouts(x: torch.Tensor) -> Any:
    """A later pipeline stage: its first norm works on what came whole, the next on a part."""
    carrier, residual = fused_add_rms_norm(x, x, WEIGHTS.norms[0], EPSILON)
    mixed = reduce_scatter(carrier @ WEIGHTS.mixers[0])
    return fused_add_rms_norm(mixed, residual[: mixed.shape[0]], WEIGHTS.norms[1], EPSILON)[0]


@pytest.mark.parametrize(
    ("function", "scattered"),
    [(sharded, [True, True]), (replicated, [False, False]), (mixed_layouts, [False, True])],
)
def test_a_site_is_scattered_only_behind_a_reduce_scatter(
    function: Callable[[torch.Tensor], Any], scattered: list[bool]
) -> None:
    x = torch.randn(6, HIDDEN)
    assert [site.scattered for site in residual_sites(trace(function, x).graph, HIDDEN)] == scattered
    assert [node.args[5] for node in tap_nodes(tapped(function, x))] == scattered, "and the tap says so"


def test_every_gathered_activation_is_tapped_in_order_and_read_through_its_tap() -> None:
    module = tapped(sharded, torch.randn(6, HIDDEN))
    nodes = tap_nodes(module, TAP_GATHERED)
    gathers: list[Any] = list(module.graph.find_nodes(op="call_function", target=torch.ops.vllm.all_gather.default))
    assert [node.args for node in nodes] == [(gather, index, 2) for index, gather in enumerate(gathers)]
    assert [list(gather.users) for gather in gathers] == [[node] for node in nodes]
    assert all(node.users for node in nodes)
    assert tap_nodes(tapped(replicated, torch.randn(6, HIDDEN)), TAP_GATHERED) == []


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


def test_a_step_knows_its_padding_and_the_compile_range_of_its_graph(record: Recorder) -> None:
    module = tapped(model, WEIGHTS.input)
    one_step(record, lambda: module(WEIGHTS.input), padded=8)
    (step,) = record.steps
    assert (step.tokens, step.padded, step.compile_range) == (TOKENS, 8, (FIRST, LAST))
    assert step.scattered == dict.fromkeys(range(5), False)


def test_with_faults_the_residual_is_read_through_the_tap_and_stays_what_it_was(
    record: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = trace(model, WEIGHTS.input)(WEIGHTS.input)
    monkeypatch.setenv(environment.FAULTS, "1")
    module = tapped(model, WEIGHTS.input)
    nodes = tap_nodes(module, torch.ops.shardproof.tap_through.default)
    assert (len(nodes), tap_nodes(module)) == (5, [])
    found: list[torch.Tensor] = []
    sites = one_step(record, lambda: found.append(module(WEIGHTS.input)))
    assert torch.equal(found[0], expected)
    assert all(torch.equal(site, truth) for site, truth in zip(sites, true_residuals(WEIGHTS.input), strict=True))


def test_what_is_recorded_is_a_copy(record: Recorder) -> None:
    x = WEIGHTS.input.clone()
    sites = one_step(record, lambda: tapped(model, x)(x))
    x.zero_()
    assert torch.equal(sites[0], WEIGHTS.input)


@pytest.mark.usefixtures("record")
def test_tap_gives_a_copy_of_the_carrier_and_keeps_to_its_declaration() -> None:
    carrier, residual = torch.randn(3, HIDDEN), torch.randn(3, HIDDEN)
    rest = (0, 1, [FIRST, LAST], False)
    torch.library.opcheck(TAP, (carrier, residual, *rest))
    copy = TAP(carrier, residual, *rest)
    assert torch.equal(copy, carrier)
    assert copy.data_ptr() != carrier.data_ptr()


def test_tap_of_a_gathered_activation_keeps_the_hash_of_each_row(record: Recorder) -> None:
    value = torch.randn(3, HIDDEN)
    torch.library.opcheck(TAP_GATHERED, (value, 0, 1))
    copies: list[torch.Tensor] = []
    one_step(record, lambda: copies.append(TAP_GATHERED(value, 0, 1)))
    assert torch.equal(copies[0], value)
    assert copies[0].data_ptr() != value.data_ptr()
    assert list(record.steps[-1].kept) == ["gathered/0"]
    assert torch.equal(record.steps[-1].kept["gathered/0"], sketch(value).hashes)


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
