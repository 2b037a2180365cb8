"""Which rows a rank holds: together the parts are the whole, in order, each row once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.residual.unshard import Part, part

TOKENS = st.integers(0, 10_000)
RANKS = st.integers(1, 64)


@given(TOKENS, RANKS)
def test_the_parts_cover_every_token_once_and_in_order(tokens: int, ranks: int) -> None:
    reached = 0
    for rank in range(ranks):
        mine = part(tokens, ranks, rank, scattered=True)
        assert mine.start == reached
        assert 0 <= mine.tokens <= mine.rows
        reached = mine.stop
    assert reached == tokens


@given(TOKENS, RANKS)
def test_all_parts_have_as_many_rows_and_no_more_padding_than_there_must_be(tokens: int, ranks: int) -> None:
    parts = [part(tokens, ranks, rank, scattered=True) for rank in range(ranks)]
    assert len({mine.rows for mine in parts}) == 1
    padding = sum(mine.rows - mine.tokens for mine in parts)
    assert padding == -tokens % ranks
    # A part with padding is the last that holds anything.
    first_padded = next((rank for rank, mine in enumerate(parts) if mine.tokens < mine.rows), ranks)
    assert all(mine.tokens == 0 for mine in parts[first_padded + 1 :])


@given(TOKENS, RANKS, st.data())
def test_a_replicated_rank_holds_everything(tokens: int, ranks: int, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, ranks - 1))
    assert part(tokens, ranks, rank, scattered=False) == Part(tokens, 0, tokens)


@given(TOKENS)
def test_one_rank_holds_everything_either_way(tokens: int) -> None:
    assert part(tokens, 1, 0, scattered=True) == part(tokens, 1, 0, scattered=False)


@pytest.mark.parametrize(
    ("tokens", "ranks", "held"),
    [
        (5, 2, [(3, 0, 3), (3, 3, 5)]),
        (4, 2, [(2, 0, 2), (2, 2, 4)]),
        (1, 2, [(1, 0, 1), (1, 1, 1)]),
        (5, 4, [(2, 0, 2), (2, 2, 4), (2, 4, 5), (2, 5, 5)]),
    ],
)
def test_by_hand(tokens: int, ranks: int, held: list[tuple[int, int, int]]) -> None:
    assert [part(tokens, ranks, rank, scattered=True) for rank in range(ranks)] == [Part(*mine) for mine in held]


@given(TOKENS, RANKS, st.integers(0, 12_000), st.data())
def test_more_padding_than_needed_moves_the_tokens_to_the_first_ranks(
    tokens: int, ranks: int, padded: int, data: st.DataObject
) -> None:
    """A step may be padded to a size that was captured: every rank's part is one of that size."""
    padded = max(tokens, padded)
    parts = [part(tokens, ranks, rank, True, padded) for rank in range(ranks)]
    assert {mine.rows for mine in parts} == {-(-padded // ranks)}
    whole = list(range(tokens))
    assert [token for mine in parts for token in whole[mine.start : mine.stop]] == whole
    rank = data.draw(st.integers(0, ranks - 1))
    assert parts[rank].start == min(rank * parts[rank].rows, tokens)
