"""What crosses from one pipeline stage to the next is kept as the model gave it and as it was given."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from vllm.sequence import IntermediateTensors

from workers.probes import boundary
from workers.probes.recorder import Recorder

from .graphs import HIDDEN


class Stage(torch.nn.Module):
    """A stage as vLLM's models are: the last one returns hidden states, the others what goes on."""

    def __init__(self, last: bool = False) -> None:
        super().__init__()
        self.last = last

    def forward(
        self,
        input_ids: torch.Tensor | None,
        positions: torch.Tensor,
        intermediate_tensors: IntermediateTensors | None = None,
    ) -> Any:
        if intermediate_tensors is None:
            assert input_ids is not None
            hidden, residual = input_ids[:, None].expand(-1, HIDDEN) * 1.0, torch.ones(len(input_ids), HIDDEN)
        else:
            hidden, residual = intermediate_tensors["hidden_states"], intermediate_tensors["residual"]
        if self.last:
            return hidden + residual
        return IntermediateTensors({"hidden_states": hidden * 2, "residual": hidden + residual})


def stage(last: bool = False) -> Stage:
    built = Stage(last)
    boundary.install(built)
    return built


def crossing(rows: int) -> IntermediateTensors:
    draw = torch.Generator().manual_seed(rows)
    return IntermediateTensors({n: torch.randn(rows, HIDDEN, generator=draw) for n in ("hidden_states", "residual")})


def run(record: Recorder, model: Stage, tokens: int, **inputs: Any) -> Any:
    """The step of one forward pass: what was kept, and the model's output."""
    record.begin(tokens)
    output = model(**inputs)
    record.end()
    return record.steps[-1], output


def kept(step: Any) -> dict[str, torch.Tensor]:
    return dict(step.kept)


def test_what_a_first_stage_sends_is_kept(record: Recorder) -> None:
    step, output = run(record, stage(), 3, input_ids=torch.tensor([4, 5, 6, 0]), positions=torch.arange(4))
    assert sorted(step.kept) == ["sent/hidden_states", "sent/residual"]
    for name, value in output.items():
        assert torch.equal(kept(step)[f"sent/{name}"], value)
    assert kept(step)["sent/hidden_states"][:, 0].tolist() == [8, 10, 12, 0]
    assert (step.tokens, step.padded) == (3, 4)


def test_what_a_middle_stage_is_given_and_sends_is_kept_apart(record: Recorder) -> None:
    given = crossing(4)
    step, output = run(record, stage(), 3, input_ids=None, positions=torch.arange(4), intermediate_tensors=given)
    assert len(step.kept) == 4
    for name in ("hidden_states", "residual"):
        assert torch.equal(kept(step)[f"received/{name}"], given[name])
        assert torch.equal(kept(step)[f"sent/{name}"], output[name])
    assert not torch.equal(kept(step)["sent/residual"], kept(step)["received/residual"])


def test_a_last_stage_sends_nothing_and_a_whole_model_receives_nothing(record: Recorder) -> None:
    last, whole = stage(last=True), stage(last=True)
    step, _ = run(record, last, 3, input_ids=None, positions=torch.arange(4), intermediate_tensors=crossing(4))
    assert sorted(step.kept) == ["received/hidden_states", "received/residual"]
    step, _ = run(record, whole, 3, input_ids=torch.arange(4), positions=torch.arange(4))
    assert step.kept == {}


def test_a_part_of_the_residual_is_kept_as_the_part_it_is(record: Recorder) -> None:
    given = IntermediateTensors({"hidden_states": torch.randn(2, HIDDEN), "residual": torch.randn(2, HIDDEN)})
    step, _ = run(record, stage(), 3, input_ids=None, positions=torch.arange(4), intermediate_tensors=given)
    assert {len(value) for value in step.kept.values()} == {2}
    assert step.padded == 4, "as many as the model has positions, not as the residual has rows"


@pytest.mark.parametrize(
    "positions", [torch.arange(6), torch.arange(18).view(3, 6)], ids=["one per token", "three per token (mrope)"]
)
@pytest.mark.parametrize("named", [True, False], ids=["by name", "by place"])
def test_padding_is_read_from_the_positions(record: Recorder, positions: torch.Tensor, named: bool) -> None:
    model, ids = stage(), torch.arange(6)
    record.begin(5)
    if named:
        model(input_ids=ids, positions=positions)
    else:
        model(ids, positions)
    record.end()
    assert record.steps[-1].padded == 6


def test_every_forward_pass_counts_its_sites_anew(record: Recorder) -> None:
    model = stage()
    record.begin(2)
    for _ in range(2):
        # A tap left over from the pass before would make the next one out of order.
        model(input_ids=torch.arange(2), positions=torch.arange(2))
        record.record(torch.zeros(2, HIDDEN), 0, 2)
    record.end()
    assert sorted(record.steps[-1].scattered) == [0]


def test_a_model_without_hooks_keeps_nothing(record: Recorder) -> None:
    step, _ = run(record, Stage(), 3, input_ids=torch.arange(4), positions=torch.arange(4))
    assert (step.kept, step.padded) == ({}, None)


def test_what_is_kept_of_the_output_is_a_copy_and_the_output_stays(record: Recorder) -> None:
    inputs: dict[str, Any] = {"input_ids": torch.arange(4), "positions": torch.arange(4)}
    step, output = run(record, stage(), 4, **inputs)
    plain = Stage()(**inputs)
    assert all(torch.equal(output[name], plain[name]) for name in plain.tensors)
    output["residual"].zero_()
    assert torch.equal(kept(step)["sent/residual"], plain["residual"])
