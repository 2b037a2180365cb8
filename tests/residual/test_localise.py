"""The first wrong place, described: which tokens, jump or drift, whose parts they are, and a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workers.protocol import Divergence, Onset, Residual, Role
from workers.residual.compare import Question, compare
from workers.residual.localise import JUMP, onset
from workers.residual.patterns import LOOKS
from workers.residual.question import noise_floor
from workers.residual.sentences import WORDS, sentence, tokens_in_words, why_not_the_same
from workers.residual.taps import Step, TapSet
from workers.residual.unshard import part

RANKS, TOKENS, HIDDEN, SITES = 2, 8, 32, 5
STEPS = [Step(TOKENS, TOKENS, ((0, 0, 3), (1, 4, 5))), Step(TOKENS, TOKENS, ((2, 0, 8),))]


def right(step: int, site: int) -> torch.Tensor:
    return torch.randn(TOKENS, HIDDEN, generator=torch.Generator().manual_seed(10 * step + site))


def control() -> TapSet:
    whole = {f"{step}/{site}": right(step, site) for step in range(len(STEPS)) for site in range(SITES)}
    return TapSet(Path("control"), [TOKENS] * len(STEPS), [whole], STEPS)


def parts() -> TapSet:
    ranks = []
    for rank in range(RANKS):
        mine = part(TOKENS, RANKS, rank, True)
        ranks.append({key: rows[mine.start : mine.stop].clone() for key, rows in control().ranks[0].items()})
    return TapSet(Path("subject"), [TOKENS] * len(STEPS), ranks, STEPS)


def compared(subject: TapSet, bitwise: bool = True) -> Residual:
    question = Question(Role.PROBE, Role.REPLICATED, True, bitwise, SITES, 3.0)
    return compare(subject, control(), question)


def first(subject: TapSet, bitwise: bool = True) -> Divergence:
    found = compared(subject, bitwise).first_divergence
    assert found is not None
    return found


# --- tokens ----------------------------------------------------------------------------------------------------------


def test_wrong_tokens_are_told_by_request_and_position() -> None:
    wrong = parts()
    wrong.ranks[1]["0/3"][[0, 1, 3]] += 1
    found = first(wrong)
    # Rank 1 has tokens 4 to 7 of the step: the second to the last of request 1, which starts at its position 4.
    assert (found.site, found.rank, found.step, found.tokens, found.rows) == ("1.attn", 1, 0, 3, [4, 5, 7])
    assert "3 tokens (request 1, positions 5 to 6; request 1, position 8)" in found.sentence


@pytest.mark.parametrize(
    ("step", "numbers", "words"),
    [
        (STEPS[0], [2, 3], "request 0, position 2; request 1, position 4"),
        (STEPS[0], [0, 1, 2], "request 0, positions 0 to 2"),
        (Step(5, 6), [1, 2, 4], "tokens 1 to 2; token 4"),
        (STEPS[1], [0, 2, 4, 6, 7], "request 2, position 0; request 2, position 2; request 2, position 4; 2 more"),
    ],
)
def test_tokens_in_words(step: Step, numbers: list[int], words: str) -> None:
    assert tokens_in_words(step, numbers) == words


@given(st.sets(st.integers(0, TOKENS - 1), min_size=1))
def test_every_token_is_named_or_counted(numbers: set[int]) -> None:
    words = tokens_in_words(Step(TOKENS, TOKENS), sorted(numbers))
    counted = 0
    for run in words.split("; "):
        ends = [int(word) for word in run.split() if word.isdigit()]
        counted += ends[0] if run.endswith("more") else ends[-1] - ends[0] + 1
    assert counted == len(numbers)


# --- jump or drift ---------------------------------------------------------------------------------------------------


def grown(factors: list[float]) -> TapSet:
    """Rank 0's first token off by so many noise floors at each site of the first step."""
    wrong = parts()
    for site, factor in enumerate(factors):
        row = wrong.ranks[0][f"0/{site}"][0]
        row[3] += float(row.norm()) * factor * noise_floor(torch.float32, site)
    return wrong


@pytest.mark.parametrize(
    ("factors", "site", "kind"),
    [
        ([0.0, 0.0, 50.0, 60.0, 70.0], "0.mlp", Onset.JUMP),
        ([0.2, 0.3, 50.0, 60.0, 70.0], "0.mlp", Onset.JUMP),
        ([0.5, 1.0, 2.0, 4.0, 8.0], "1.attn", Onset.DRIFT),
        ([1.0, 2.0, 2.9, 3.5, 3.9], "1.attn", Onset.DRIFT),
        ([9.0, 0.0, 0.0, 0.0, 0.0], "embed", Onset.JUMP),
    ],
)
def test_an_error_that_comes_up_and_one_that_has_grown(factors: list[float], site: str, kind: Onset) -> None:
    found = first(grown(factors), bitwise=False)
    assert (found.site, found.onset) == (site, kind)
    assert ("grown over the sites before" in found.sentence) is (kind is Onset.DRIFT)


def test_each_step_starts_anew() -> None:
    """What was wrong at later sites of the step before is no growth."""
    wrong = grown([0.0, 0.0, 0.0, 0.0, 2.9])
    wrong.ranks[0]["1/0"][0] += 1e-3
    assert first(wrong, bitwise=False).onset is Onset.JUMP


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_the_limit_between_them(score: float, before: float) -> None:
    assert (onset(score, before) is Onset.JUMP) is (score > JUMP * before)
    assert onset(None, before) is Onset.JUMP


# --- whose part it is ------------------------------------------------------------------------------------------------


def test_the_confusion_matrix_of_ranks_that_swapped_their_parts() -> None:
    wrong = parts()
    wrong.ranks[0]["1/2"], wrong.ranks[1]["1/2"] = wrong.ranks[1]["1/2"], wrong.ranks[0]["1/2"]
    found = first(wrong)
    assert (found.pattern, found.rank) == ("slice-of-rank-1", 0)
    assert (found.confusion[0][1], found.confusion[1][0]) == (0.0, 0.0)
    assert all(error is not None and error > 0.5 for error in (found.confusion[0][0], found.confusion[1][1]))
    assert "so does every other rank" not in found.sentence


def test_every_rank_with_the_part_of_one() -> None:
    wrong = parts()
    wrong.ranks[1]["0/2"] = wrong.ranks[0]["0/2"].clone()
    found = first(wrong)
    assert (found.pattern, found.rank) == ("slice-of-rank-0", 1)
    assert "rank 1 holds the part of rank 0, and so does every other rank" in found.sentence
    assert [row[0] for row in found.confusion] == [0.0, 0.0]


def test_no_number_for_parts_of_other_sizes_or_without_numbers() -> None:
    wrong = parts()
    wrong.ranks[0]["0/1"] = wrong.ranks[0]["0/1"][:3]
    assert first(wrong).confusion[0] == [None, None]
    wrong = parts()
    wrong.ranks[0]["0/1"][0, 0] = torch.nan
    confusion = first(wrong).confusion
    assert confusion[0] == [None, None]
    assert confusion[1][1] == 0.0


# --- stale buffers, seen through the recording -----------------------------------------------------------------------


def test_what_an_earlier_step_or_site_left_behind() -> None:
    wrong = parts()
    wrong.ranks[1]["1/3"] = wrong.ranks[1]["0/3"].clone()
    assert first(wrong).pattern == "stale-of-step-0"
    wrong = parts()
    wrong.ranks[1]["1/3"] = wrong.ranks[1]["1/2"].clone()
    found = first(wrong)
    assert found.pattern == "stale-of-site-0.mlp"
    assert "still holds the residual of site 0.mlp" in found.sentence


# --- words -----------------------------------------------------------------------------------------------------------


def test_a_sentence_says_what_where_which_and_why() -> None:
    wrong = parts()
    wrong.ranks[0]["0/1"].zero_()
    found = first(wrong)
    floor = f"{found.score:.3g} times the noise floor"
    assert found.sentence == (
        "site 0.attn, step 0: rank 0 holds zeros, 4 tokens (request 0, positions 0 to 2; request 1, position 4), "
        f"{floor}; likely a buffer that was never filled"
    )


PATTERNS = [stem + ("3" if stem.endswith("-") else "") for stem in WORDS]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_pattern_has_its_own_words(pattern: str) -> None:
    found = Divergence(site="embed", rank=0, step=0, pattern=pattern, tokens=1, score=None, rows=[2])
    words = sentence(found, Step(4, 4), False)
    others = [sentence(found.model_copy(update={"pattern": other}), Step(4, 4), False) for other in PATTERNS]
    assert others.count(words) == 1
    assert "{" not in words


def test_patterns_and_looks_are_not_fewer_than_the_words_say() -> None:
    assert len(LOOKS) == len({look.__name__ for look in LOOKS}) == 10


def test_why_two_runs_of_one_plan_may_differ() -> None:
    found = Divergence(site="embed", rank=0, step=0, pattern="values", tokens=1, score=1.0)
    assert "every step differs" in why_not_the_same(found, 4, 4)
    assert "2 of 4 steps differ, here and there" in why_not_the_same(found, 2, 4)
    assert "prefix or KV cache" in why_not_the_same(found.model_copy(update={"step": 2}), 2, 4)
    assert "read before it is written" in why_not_the_same(
        found.model_copy(update={"pattern": "stale-of-step-1"}), 4, 4
    )
