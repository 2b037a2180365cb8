"""The measured noise floor, and what a score against it means."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from workers.protocol import Floor, Role
from workers.residual.compare import Question, compare
from workers.residual.noise import Run, distances, measured_floor
from workers.residual.rows import rows_of
from workers.residual.taps import TapSet

SITES, TOKENS, HIDDEN = 3, [5, 2], 16
STEPS = frozenset(range(len(TOKENS)))


def recording(name: str, error: float = 0.0, seed: int = 0, ranks: int = 1) -> TapSet:
    """A replicated residual, one token off by ``error`` (relative to its size) in one element of each site."""
    plain = torch.Generator().manual_seed(1)
    tensors = {}
    for step, tokens in enumerate(TOKENS):
        for site in range(SITES):
            value = torch.randn(tokens, HIDDEN, generator=plain)
            value[seed % tokens, site] += error * float(value[seed % tokens].norm())
            tensors[f"{step}/{site}"] = value
    return TapSet(Path(name), TOKENS, [tensors] * ranks)


def question(**fields: object) -> Question:
    asked = Question(Role.PROBE, Role.REPLICATED, False, False, SITES, 3.0)
    return dataclasses.replace(asked, **fields)  # type: ignore[arg-type]


def test_the_floor_is_the_largest_error_of_any_perturbed_run() -> None:
    runs = [(recording("a", 1e-6), STEPS), (recording("b", 4e-6, seed=1), STEPS)]
    floor = measured_floor(recording("plain"), runs, SITES)
    assert floor is not None
    assert floor == pytest.approx([4e-6] * SITES, rel=0.2)


@pytest.mark.parametrize(
    "runs",
    [[], [(dataclasses.replace(recording("other"), tokens=[5, 3]), STEPS)], [(recording("parted"), frozenset())]],
)
def test_without_a_usable_run_there_is_no_floor(runs: list[Run]) -> None:
    assert measured_floor(recording("plain"), runs, SITES) is None


def test_steps_that_were_fed_other_tokens_do_not_count() -> None:
    spoiled = recording("parted", 1e-6)
    spoiled.ranks[0]["1/0"] += 1
    floor = measured_floor(recording("plain"), [(spoiled, frozenset({0}))], SITES)
    assert floor == pytest.approx([1e-6] * SITES, rel=0.2)
    asked = question(noise=(1e-6,) * SITES, steps=frozenset({0}))
    found = compare(spoiled, recording("control"), asked)
    assert (found.first_divergence, found.steps, found.steps_left_out, found.tokens) == (None, 1, 1, TOKENS[0])
    assert compare(spoiled, recording("control"), question()).first_divergence is not None


@pytest.mark.parametrize(("error", "fine"), [(1e-6, True), (1e-4, False)])
def test_four_replicas_may_differ_by_noise(error: float, fine: bool) -> None:
    plain = recording("probe", ranks=4)
    other = recording("other", error).ranks[0]
    uneven = dataclasses.replace(plain, ranks=[*plain.ranks[:3], other])
    found = compare(uneven, recording("control"), question())
    assert found.replicas_equal is False
    assert (found.first_divergence is None) == fine


def test_two_replicas_agree_to_the_bit() -> None:
    plain = recording("probe", ranks=2)
    uneven = dataclasses.replace(plain, ranks=[plain.ranks[0], recording("other", 2e-7).ranks[0]])
    found = compare(uneven, recording("control"), question())
    assert found.first_divergence is not None
    assert found.first_divergence.pattern == "replicas-differ"


@pytest.mark.parametrize(("error", "fine"), [(2e-6, True), (2.9e-6, True), (4e-6, False), (1e-4, False)])
def test_three_times_the_floor_is_the_limit(error: float, fine: bool) -> None:
    found = compare(recording("probe", error, ranks=4), recording("control"), question(noise=(1e-6,) * SITES))
    assert found.floor is Floor.MEASURED
    assert (found.first_divergence is None) == fine
    assert found.worst_score == pytest.approx(error / 1e-6, rel=0.2)


def test_raw_scores_are_kept_for_every_site_and_rank() -> None:
    found = compare(recording("probe", 2e-6, ranks=4), recording("control"), question(noise=(1e-6, 2e-6, 4e-6)))
    assert [(score.site, score.rank) for score in found.scores] == [
        (site, rank) for site in ("embed", "0.attn", "0.mlp") for rank in range(4)
    ]
    assert [score.floor for score in found.scores[::4]] == [1e-6, 2e-6, 4e-6]
    assert found.scores[0].median <= found.scores[0].p99 <= found.scores[0].max == found.worst_score


def test_a_floor_of_zero_does_not_make_the_last_digit_a_fault() -> None:
    eps = torch.finfo(torch.float32).eps
    asked = question(noise=(0.0,) * SITES)
    assert asked.floor(rows_of(torch.ones(1, 4)), 0) == eps
    assert compare(recording("probe", eps), recording("control"), asked).first_divergence is None


def test_precision_of_the_recording_decides_not_that_of_the_reference() -> None:
    halved = recording("probe")
    rounded = {key: value.bfloat16() for key, value in halved.ranks[0].items()}
    found = compare(dataclasses.replace(halved, ranks=[rounded]), recording("control"), question())
    assert (found.floor, found.first_divergence) == (Floor.MODELLED, None)
    assert found.worst_score is not None
    assert 0 < found.worst_score < 1


def test_distance_from_a_reference_is_a_floor_for_another_arm() -> None:
    floor = distances(recording("replicated", 1e-6), recording("reference"), SITES, STEPS)
    assert floor is not None
    for error, fine in ((2e-6, True), (1e-5, False)):
        found = compare(recording("sp", error), recording("reference"), question(noise=floor))
        assert (found.first_divergence is None) == fine
