"""What a comparison says of what it found: pattern, rows, score."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.protocol import Divergence, Policy, Role
from workers.residual.compare import LARGEST_SCORE, Question, compare, noise_floor
from workers.residual.question import ACCUMULATED
from workers.residual.taps import NoTaps, TapSet, load, site_count, site_name

TOKENS = [4, 3]
WHOLE = {f"{step}/0": torch.arange(8.0 * tokens).reshape(tokens, 8) + 1 for step, tokens in enumerate(TOKENS)}
QUESTION = Question(Role.PROBE, Role.REPLICATED, scattered=True, bitwise=True, sites=1, noise_factor=3.0)


def taps(*ranks: dict[str, torch.Tensor], folder: str = "subject") -> TapSet:
    return TapSet(Path(folder), TOKENS, [dict(tensors) for tensors in ranks])


def parts() -> list[dict[str, torch.Tensor]]:
    """Two ranks, the second one with a row of padding in the second step."""
    first = {"0/0": WHOLE["0/0"][:2].clone(), "1/0": WHOLE["1/0"][:2].clone()}
    second = {"0/0": WHOLE["0/0"][2:].clone(), "1/0": torch.cat([WHOLE["1/0"][2:], torch.full((1, 8), -5.0)])}
    return [first, second]


CONTROL = taps(WHOLE, folder="control")


def divergence(ranks: list[dict[str, torch.Tensor]], **question: object) -> Divergence:
    found = compare(taps(*ranks), CONTROL, dataclasses.replace(QUESTION, **question))  # type: ignore[arg-type]
    assert found.first_divergence is not None
    return found.first_divergence


def test_healthy() -> None:
    found = compare(taps(*parts()), CONTROL, QUESTION)
    assert (found.bitwise_equal, found.first_divergence, found.elements) == (True, None, 8 * sum(TOKENS))


def test_wrong_rows_are_counted() -> None:
    ranks = parts()
    ranks[0]["0/0"] += 1.0
    assert divergence(ranks).tokens == 2
    ranks = parts()
    ranks[1]["1/0"][0] = 0.5
    found = divergence(ranks)
    assert (found.step, found.site, found.rank, found.tokens, found.pattern) == (1, "embed", 1, 1, "values")


def test_padding_is_not_looked_at() -> None:
    ranks = parts()
    ranks[1]["1/0"][1] = torch.nan
    assert compare(taps(*ranks), CONTROL, QUESTION).bitwise_equal is True


@pytest.mark.parametrize(
    ("spoil", "pattern"),
    [
        (lambda rows: rows * torch.nan, "nan"),
        (torch.zeros_like, "zeros"),
        (lambda rows: WHOLE["0/0"][2:].clone(), "slice-of-rank-1"),
        (lambda rows: rows[:1], "wrong-size: 1 rows where 2 belong"),
        (lambda rows: torch.cat([rows, rows]), "wrong-size: 4 rows where 2 belong"),
        (lambda rows: rows[:, :4], r"wrong-size: rows of [4] numbers where [8] belong"),
    ],
)
def test_the_pattern_is_named(spoil, pattern: str) -> None:  # type: ignore[no-untyped-def]
    ranks = parts()
    ranks[0]["0/0"] = spoil(ranks[0]["0/0"])
    found = divergence(ranks)
    assert (found.pattern, found.rank) == (pattern, 0)


def test_a_score_is_the_relative_error_of_a_token_in_units_of_the_noise_floor() -> None:
    ranks = parts()
    ranks[0]["0/0"][1, 3] += 0.5
    right = WHOLE["0/0"][1]
    expected = 0.5 / float(right.norm()) / noise_floor(torch.float32, 0)
    assert divergence(ranks).score == pytest.approx(expected)


def test_one_wrong_token_among_large_ones_is_not_drowned() -> None:
    """Each token is held to its own size: the largest number of a part would hide an error in a small token."""
    whole = {key: rows * torch.tensor([1e-3] + [1e3] * (len(rows) - 1))[:, None] for key, rows in WHOLE.items()}
    ranks = [{"0/0": whole["0/0"][:2].clone(), "1/0": whole["1/0"][:2].clone()}]
    ranks[0]["0/0"][0, 0] *= 1.01
    alone = dataclasses.replace(QUESTION, scattered=False, bitwise=False)
    only = dataclasses.replace(taps(*ranks), tokens=[2, 2])
    found = compare(only, dataclasses.replace(taps(whole, folder="control"), tokens=[2, 2]), alone).first_divergence
    assert found is not None
    assert (found.rows, found.tokens) == ([0], 1)


@pytest.mark.parametrize("bitwise", [True, False])
def test_what_is_no_number_has_no_score_and_is_the_worst(bitwise: bool) -> None:
    ranks = parts()
    ranks[1]["0/0"][0, 0] = torch.nan
    found = compare(taps(*ranks), CONTROL, dataclasses.replace(QUESTION, bitwise=bitwise))
    assert found.first_divergence is not None
    assert found.first_divergence.score is None
    assert found.worst_score == LARGEST_SCORE


def test_an_error_where_all_should_be_zero_is_endless() -> None:
    zeros = {key: torch.zeros_like(tensor) for key, tensor in WHOLE.items()}
    found = compare(taps(*parts()), taps(zeros, folder="control"), dataclasses.replace(QUESTION, bitwise=False))
    assert found.worst_score == LARGEST_SCORE


def test_the_noise_factor_decides_where_bits_may_differ() -> None:
    ranks = parts()
    ranks[0]["0/0"][1, 7] += float(WHOLE["0/0"][1].norm()) * 2 * noise_floor(torch.float32, 0)
    score = divergence(ranks).score
    assert score == pytest.approx(2.0, rel=2e-2)
    loose = compare(taps(*ranks), CONTROL, dataclasses.replace(QUESTION, bitwise=False, noise_factor=2.1))
    strict = compare(taps(*ranks), CONTROL, dataclasses.replace(QUESTION, bitwise=False, noise_factor=1.9))
    assert (loose.first_divergence is None, strict.first_divergence is None) == (True, False)
    assert loose.bitwise_equal is strict.bitwise_equal is False
    assert (loose.wrong_steps, strict.wrong_steps) == (0, 1)
    # Either could have been told from the other's scores alone.
    assert [record.score for record in loose.records] == [record.score for record in strict.records] == [score]
    assert [record.pattern for record in (*loose.records, *strict.records)] == ["rounding", "values"]


@given(st.lists(st.sampled_from([0.0, 0.5, 0.9, 2.0, 5.0, 5.0, 30.0]), min_size=2, max_size=2), st.floats(0.1, 40.0))
@settings(deadline=None, max_examples=40)
def test_the_records_tell_the_first_divergence_for_every_noise_factor(errors: list[float], factor: float) -> None:
    ranks = parts()
    for step, error in enumerate(errors):
        row = ranks[0][f"{step}/0"][1]
        row[7] += float(row.norm()) * error * noise_floor(torch.float32, 0)
    asked = dataclasses.replace(QUESTION, bitwise=False, noise_factor=factor)
    found = compare(taps(*ranks), CONTROL, asked)
    stored = compare(taps(*ranks), CONTROL, dataclasses.replace(asked, noise_factor=3.0)).records
    told = next((record for record in stored if record.score is None or record.score > factor), None)
    first = found.first_divergence
    assert (first is None) == (told is None)
    assert first is None or told is None or (first.step, first.rank) == (told.step, told.rank)


def test_the_noise_floor_grows_with_the_layers() -> None:
    digit = torch.finfo(torch.float32).eps
    eps = torch.finfo(torch.bfloat16).eps + ACCUMULATED * digit
    asked = [noise_floor(torch.bfloat16, site, factor=2.0, growth=3.0) for site in range(5)]
    assert asked == pytest.approx([2 * eps, 6 * eps, 6 * eps, 18 * eps, 18 * eps])
    policy = Policy()
    assert noise_floor(torch.float32, 0) == policy.modelled_factor * (1 + ACCUMULATED) * digit


def test_another_layout_in_some_steps() -> None:
    """Below the threshold of SP each rank holds every token: the step is compared as it is, and counted apart."""
    first, second = parts()
    mixed = [first | {"1/0": WHOLE["1/0"].clone()}, second | {"1/0": WHOLE["1/0"].clone()}]
    asked = dataclasses.replace(QUESTION, whole=frozenset({(1, 0)}))
    found = compare(taps(*mixed), CONTROL, asked)
    assert (found.bitwise_equal, found.replicas_equal, found.first_divergence) == (True, True, None)
    assert (found.scattered_rows, found.replicated_rows) == (TOKENS[0], TOKENS[1])
    assert found.elements == 8 * (TOKENS[0] + 2 * TOKENS[1])
    wrong = compare(taps(*mixed), CONTROL, QUESTION).first_divergence
    assert wrong is not None
    assert (wrong.step, wrong.pattern) == (1, "replicated-where-scattered")
    part = compare(taps(*parts()), CONTROL, asked).first_divergence
    assert part is not None
    assert (part.step, part.pattern) == (1, "scattered-where-replicated")
    mixed[1]["1/0"] = mixed[1]["1/0"] + torch.finfo(torch.float32).eps * 32
    other = compare(taps(*mixed), CONTROL, dataclasses.replace(asked, bitwise=False)).first_divergence
    assert other is not None
    assert (other.pattern, other.rank, other.rows) == ("replicas-differ", 1, [0, 1, 2])


def test_each_rank_against_itself() -> None:
    """An arm that is run twice: four ranks may differ among themselves, and none from itself."""
    ranks = [{key: rows + rank * 1e-6 for key, rows in WHOLE.items()} for rank in range(4)]
    asked = dataclasses.replace(
        QUESTION, subject=Role.REPLICATED, against=Role.REPLICATED, scattered=False, by_rank=True
    )
    found = compare(taps(*ranks, folder="again"), taps(*ranks), asked)
    assert (found.bitwise_equal, found.first_divergence, found.replicas_equal) == (True, None, None)
    assert compare(taps(*ranks), CONTROL, asked).missing
    ranks[2] = ranks[2] | {"1/0": ranks[2]["1/0"] + 1}
    before = [{key: rows + rank * 1e-6 for key, rows in WHOLE.items()} for rank in range(4)]
    wrong = compare(taps(*ranks, folder="again"), taps(*before), asked)
    assert wrong.first_divergence is not None
    assert (wrong.first_divergence.step, wrong.first_divergence.rank, wrong.wrong_steps) == (1, 2, 1)
    assert "1 of 2 steps differ" in wrong.first_divergence.sentence


def test_the_subject_s_number_of_ranks_is_what_counts() -> None:
    (first, _) = parts()
    found = compare(taps(first), CONTROL, QUESTION)
    assert found.ranks == 1
    assert found.first_divergence is not None


@pytest.mark.parametrize("number", range(5))
def test_sites_are_named_by_layer_and_half(number: int) -> None:
    assert site_name(number) == ["embed", "0.attn", "0.mlp", "1.attn", "1.mlp"][number]
    assert site_count(2) == 5


def test_a_folder_that_is_not_there_has_no_taps(tmp_path: Path) -> None:
    with pytest.raises(NoTaps, match="rank 0 recorded no residual"):
        load(tmp_path / "nowhere", 2)
