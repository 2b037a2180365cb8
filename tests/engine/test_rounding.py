"""Rounding errors in the embedding, and hashes of the norms: what is done to, and read from, a model's weights."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.layernorm import GemmaRMSNorm, RMSNorm
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

from workers.probes import norms
from workers.probes.rounding import Rounding, scaled

VOCABULARY, HIDDEN = 128, 16
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


class Model(torch.nn.Module):
    """vLLM's own layers, on a single rank."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.embed_tokens = VocabParallelEmbedding(VOCABULARY, HIDDEN, params_dtype=dtype, disable_tp=True)
        self.norm = RMSNorm(HIDDEN)
        self.gemma = GemmaRMSNorm(HIDDEN)
        self.plain = torch.nn.Linear(HIDDEN, HIDDEN)
        self.lm_head = ParallelLMHead(VOCABULARY, HIDDEN, params_dtype=dtype, disable_tp=True)
        draw = torch.Generator().manual_seed(0)
        for weight in self.parameters():
            weight.data.copy_(torch.randn(weight.shape, generator=draw))


@pytest.fixture(scope="module")
def config() -> Iterator[None]:
    with set_current_vllm_config(VllmConfig()):
        yield


@pytest.fixture
def model(config: None) -> Model:
    return Model()


def bits(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def changed(model: torch.nn.Module, before: dict[str, torch.Tensor]) -> set[str]:
    return {name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])}


# --- the error -------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), dtype=st.sampled_from(DTYPES), size=st.sampled_from([1e-3, 1.0, 100.0]))
def test_each_element_is_off_by_one_rounding_error(seed: int, dtype: torch.dtype, size: float) -> None:
    value = (torch.randn(64, 32, generator=torch.Generator().manual_seed(seed)) * size).to(dtype)
    value = torch.where(value.abs() < torch.finfo(dtype).smallest_normal, torch.ones((), dtype=dtype), value)
    found = scaled(value, seed)
    assert found.dtype == dtype
    error = (found.double() - value.double()) / value.double()
    eps = torch.finfo(dtype).eps
    assert bool((error != 0).all()), "no element is spared"
    # By eps, and that rounded once more to the format: by half a unit in the last place, at most half of eps.
    assert float(error.abs().max()) <= 1.5 * eps
    assert float(error.abs().min()) >= eps / 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_half_of_the_elements_grow_and_half_shrink_by_a_draw_of_their_own(dtype: torch.dtype) -> None:
    grown = scaled(torch.ones(200, 200, dtype=dtype), 1) > 1
    # Of 40000 fair draws the part of ups is 0.5 ± 0.0025.
    assert abs(float(grown.double().mean()) - 0.5) < 0.0125
    assert 0.3 < float(grown.double().mean(dim=0).min()) <= float(grown.double().mean(dim=0).max()) < 0.7
    assert 0.3 < float(grown.double().mean(dim=1).min()) <= float(grown.double().mean(dim=1).max()) < 0.7


def test_another_seed_draws_other_errors_and_the_same_one_the_same() -> None:
    value = torch.ones(100, 100)
    one, again, two = scaled(value, 1), scaled(value, 1), scaled(value, 2)
    assert torch.equal(one, again)
    assert 0.45 < float((one != two).double().mean()) < 0.55


def test_zeros_stay_zeros() -> None:
    assert torch.equal(scaled(torch.zeros(4, 4), 1), torch.zeros(4, 4))


# --- in a model ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.usefixtures("config")
def test_the_embedding_alone_is_changed_and_comes_back_to_the_bit(dtype: torch.dtype) -> None:
    model, rounding = Model(dtype), Rounding()
    before = bits(model)
    assert rounding.apply(model, 1) == before["embed_tokens.weight"].numel()
    assert changed(model, before) == {"embed_tokens.weight"}
    assert torch.equal(model.embed_tokens.weight, scaled(before["embed_tokens.weight"], 1))
    rounding.restore()
    assert changed(model, before) == set()


def test_the_head_is_an_embedding_by_class_so_it_has_to_be_passed_over(model: Model) -> None:
    assert isinstance(model.lm_head, VocabParallelEmbedding)


def test_errors_do_not_add_up_over_seeds(model: Model) -> None:
    before, rounding = bits(model), Rounding()
    for seed in (1, 2, 3):
        rounding.apply(model, seed)
        assert torch.equal(model.embed_tokens.weight, scaled(before["embed_tokens.weight"], seed))
    rounding.restore()
    assert changed(model, before) == set()


def test_restoring_twice_leaves_alone_what_was_changed_since(model: Model) -> None:
    rounding = Rounding()
    rounding.apply(model, 1)
    rounding.restore()
    model.embed_tokens.weight.data.zero_()
    rounding.restore()
    assert not model.embed_tokens.weight.any()


def test_the_weight_stays_where_it_is(model: Model) -> None:
    # A captured CUDA graph reads from the address it was captured with.
    weight, address = model.embed_tokens.weight, model.embed_tokens.weight.data_ptr()
    rounding = Rounding()
    rounding.apply(model, 1)
    rounding.restore()
    assert model.embed_tokens.weight is weight
    assert weight.data_ptr() == address


def test_the_embedding_gives_the_changed_rows(model: Model) -> None:
    ids = torch.tensor([0, 5, VOCABULARY - 1])
    before = model.embed_tokens(ids).clone()
    Rounding().apply(model, 1)
    after = model.embed_tokens(ids)
    assert not torch.equal(after, before)
    assert torch.allclose(after, before, rtol=2 * torch.finfo(torch.float32).eps, atol=0)


@pytest.mark.usefixtures("config")
def test_a_stage_without_an_embedding_is_left_alone(model: Model) -> None:
    del model.embed_tokens
    before = bits(model)
    assert Rounding().apply(model, 1) == 0
    assert changed(model, before) == set()


# --- norms -----------------------------------------------------------------------------------------------------------


def test_every_norm_is_hashed_and_nothing_else(model: Model) -> None:
    assert set(norms.hashes(model)) == {"norm.weight", "gemma.weight"}


@pytest.mark.usefixtures("config")
def test_equal_weights_have_equal_hashes_and_one_bit_makes_another(model: Model) -> None:
    before = norms.hashes(model)
    assert norms.hashes(Model()) == before
    weight = model.norm.weight.data
    weight[3] = torch.nextafter(weight[3], torch.tensor(torch.inf))
    after = norms.hashes(model)
    assert after["norm.weight"] != before["norm.weight"]
    assert after["gemma.weight"] == before["gemma.weight"]
    weight.zero_()
    zero = norms.hashes(model)["norm.weight"]
    weight.copy_(-weight)
    assert norms.hashes(model)["norm.weight"] != zero, "the sign of a zero is a bit too"


def test_weights_in_half_precision_are_hashed(model: Model) -> None:
    whole = norms.hashes(model)
    model.norm.to(torch.bfloat16)
    assert norms.hashes(model)["norm.weight"] != whole["norm.weight"]
