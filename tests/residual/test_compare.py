"""What a comparison says of what it found: pattern, rows, score."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
import torch

from workers.protocol import Divergence, Role
from workers.residual.compare import LARGEST_SCORE, Question, compare, noise_floor
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


def test_a_score_is_the_relative_error_in_units_of_the_noise_floor() -> None:
    ranks = parts()
    ranks[0]["0/0"][1, 3] += 0.5
    # The largest number of rank 0's part is 16.
    expected = 0.5 / 16 / (4 * torch.finfo(torch.float32).eps)
    assert divergence(ranks).score == pytest.approx(expected)


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
    ranks[0]["0/0"][1, 7] += 16 * 2 * noise_floor(torch.float32, 0)
    score = divergence(ranks).score
    assert score == pytest.approx(2.0, rel=1e-3)
    loose = compare(taps(*ranks), CONTROL, dataclasses.replace(QUESTION, bitwise=False, noise_factor=2.1))
    strict = compare(taps(*ranks), CONTROL, dataclasses.replace(QUESTION, bitwise=False, noise_factor=1.9))
    assert (loose.first_divergence is None, strict.first_divergence is None) == (True, False)
    assert loose.bitwise_equal is strict.bitwise_equal is False


def test_the_noise_floor_grows_with_the_additions() -> None:
    eps = torch.finfo(torch.bfloat16).eps
    assert [noise_floor(torch.bfloat16, site) for site in (0, 3, 8)] == [4 * eps, 8 * eps, 12 * eps]
    assert math.isclose(noise_floor(torch.float32, 1) / noise_floor(torch.float32, 0), math.sqrt(2))


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
