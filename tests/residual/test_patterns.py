"""What a wrong residual is, in a word: from whole rows and from sketches alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from workers.residual.patterns import Sight, name_pattern
from workers.residual.rows import Rows, rows_of
from workers.residual.sketch import sketch

RANKS, ROWS, HIDDEN = 3, 4, 96
WHOLE = torch.randn(RANKS * ROWS, HIDDEN, generator=torch.Generator().manual_seed(3))
BEFORE = torch.randn(RANKS * ROWS, HIDDEN, generator=torch.Generator().manual_seed(4))
RANK = 1
MINE = slice(RANK * ROWS, (RANK + 1) * ROWS)
OWN, ADDED = WHOLE[MINE], WHOLE[MINE] - BEFORE[MINE]
EARLIER = torch.randn(ROWS, HIDDEN, generator=torch.Generator().manual_seed(5))

Keep = Callable[[torch.Tensor], Rows]
KINDS: dict[str, Keep] = {"whole": rows_of, "sketch": lambda rows: rows_of(sketch(rows))}


def sight(got: torch.Tensor, keep: Keep, **fields: Any) -> Sight:
    """What can be seen of ``got`` on rank 1 of three."""
    expected = keep(OWN)
    wrong = (~keep(got).hold(expected).equal).nonzero().flatten() if len(got) == ROWS else torch.arange(len(got))
    seen: dict[str, Any] = {
        "wrong": wrong,
        "slices": [keep(part) for part in WHOLE.split(ROWS)],
        "rank": RANK,
        "whole": keep(WHOLE),
        "start": MINE.start,
        "before": ("0.attn", keep(BEFORE[MINE])),
        "earlier": [(4, keep(EARLIER + 1)), (2, keep(EARLIER))],
    }
    return Sight(keep(got), **(seen | fields))


def with_rows(*rows: torch.Tensor) -> torch.Tensor:
    return torch.stack(rows)


WRONG: dict[str, tuple[torch.Tensor, str]] = {
    "an infinity": (OWN * torch.tensor([[1.0], [torch.inf], [1.0], [1.0]]), "nan"),
    "a NaN": (OWN + torch.tensor([[0.0], [0.0], [torch.nan], [0.0]]), "nan"),
    "zeros": (torch.zeros_like(OWN), "zeros"),
    "one row of zeros": (OWN * torch.tensor([[1.0], [1.0], [0.0], [1.0]]), "zeros"),
    "almost zeros": (torch.full_like(OWN, 1e-30), "values"),
    "part of rank 0": (WHOLE[:ROWS], "slice-of-rank-0"),
    "part of rank 2": (WHOLE[2 * ROWS :], "slice-of-rank-2"),
    "one row of another part": (with_rows(OWN[0], WHOLE[1], OWN[2], OWN[3]), "slice-of-rank-0"),
    "one token back": (WHOLE[MINE.start - 1 : MINE.stop - 1], "shifted-by-a-token"),
    "one token on": (WHOLE[MINE.start + 1 : MINE.stop + 1], "shifted-by-a-token"),
    "rolled on": (OWN.roll(1, dims=0), "shifted-by-a-token"),
    "rolled back": (OWN.roll(-1, dims=0), "shifted-by-a-token"),
    "two rows swapped": (OWN[[3, 1, 2, 0]], "permuted"),
    "reversed": (OWN.flip(0), "permuted"),
    "rows of others": (WHOLE[[0, 9, 3, 11]], "rows-of-other-tokens"),
    "the first row twice": (OWN[[0, 1, 2, 0]], "rows-of-other-tokens"),
    "an earlier step": (EARLIER, "stale-of-step-2"),
    "some rows of an earlier step": (with_rows(OWN[0], EARLIER[1], EARLIER[2], OWN[3]), "stale-of-step-2"),
    "the site before": (BEFORE[MINE], "stale-of-site-0.attn"),
    "twice": (OWN * 2, "doubled"),
    "half": (OWN * 0.5, "halved"),
    "opposite": (-OWN, "negated"),
    "one row twice as large": (OWN * torch.tensor([[1.0], [2.0], [1.0], [1.0]]), "doubled"),
    "added three times": (BEFORE[MINE] + 3 * ADDED, "reduced-twice"),
    "added a third": (BEFORE[MINE] + ADDED / 3, "averaged"),
    "added two times": (BEFORE[MINE] + 2 * ADDED, "added-twice"),
    "subtracted": (BEFORE[MINE] - ADDED, "subtracted"),
    "a little more": (OWN * 1.001, "values"),
    "one number": (OWN + torch.eye(ROWS, HIDDEN), "values"),
    "columns": (OWN.roll(1, dims=1), "values"),
    "added once and a half": (BEFORE[MINE] + 1.5 * ADDED, "values"),
}


@pytest.mark.parametrize("keep", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(("got", "name"), WRONG.values(), ids=WRONG)
def test_the_pattern_is_named(got: torch.Tensor, name: str, keep: Keep) -> None:
    assert name_pattern(sight(got, keep)) == name


@pytest.mark.parametrize("keep", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(
    "got", [got for got, name in WRONG.values() if name not in ("nan", "zeros")], ids=[
        case for case, (_, name) in WRONG.items() if name not in ("nan", "zeros")]
)  # fmt: skip
def test_rounding_does_not_hide_the_pattern_where_bits_may_differ(got: torch.Tensor, keep: Keep) -> None:
    """Four ranks add up in another order than the arm compared with: nothing is equal to the bit."""
    noisy = got * (1 + 1e-6 * torch.randn(got.shape, generator=torch.Generator().manual_seed(6)))
    name = next(name for wrong, name in WRONG.values() if torch.equal(wrong, got))
    seen = sight(noisy, keep, wrong=sight(got, keep).wrong, close=1e-5, rounding=1e-5)
    assert name_pattern(seen) == name
    if name not in ("values", "doubled", "halved", "negated", "reduced-twice", "averaged", "added-twice", "subtracted"):
        exact = sight(noisy, keep, wrong=sight(got, keep).wrong)
        assert name_pattern(exact) != name


@pytest.mark.parametrize("keep", KINDS.values(), ids=KINDS)
def test_last_digits(keep: Keep) -> None:
    moved = torch.nextafter(OWN, torch.tensor(torch.inf))
    assert name_pattern(sight(moved, keep, rounding=1e-5)) == "rounding"
    assert name_pattern(sight(OWN + 1e-3, keep, rounding=1e-5)) == "values"


@pytest.mark.parametrize("keep", KINDS.values(), ids=KINDS)
def test_shares_that_nobody_added_up(keep: Keep) -> None:
    """Each of three ranks holds everything but the others' shares; one alone cannot be told from wrong numbers."""
    shares = torch.randn(RANKS, ROWS, HIDDEN, generator=torch.Generator().manual_seed(7))
    before = OWN - shares.sum(dim=0)
    copies = [keep(before + share) for share in shares]
    got = before + shares[RANK]
    asked = {"before": ("0.attn", keep(before)), "slices": [keep(OWN)] * RANKS, "whole": keep(OWN), "start": 0}
    assert name_pattern(sight(got, keep, copies=copies, **asked)) == "unreduced"
    right = [*copies[:2], keep(OWN)]
    assert name_pattern(sight(got, keep, copies=right, **asked)) == "values"
    assert name_pattern(sight(got, keep, **asked)) == "values"


def test_a_short_part_is_known_by_the_rows_it_has() -> None:
    slices = [rows_of(OWN), rows_of(WHOLE[:0]), rows_of(WHOLE[-1:])]
    got = torch.cat([WHOLE[-1:], torch.full((ROWS - 1, HIDDEN), 7.0)])
    seen = {"slices": slices, "rank": 0, "wrong": torch.arange(ROWS)}
    assert name_pattern(sight(got, rows_of, **seen)) == "slice-of-rank-2"
    assert name_pattern(sight(torch.full((ROWS, HIDDEN), 7.0), rows_of, **seen)) == "values"


def test_at_the_first_site_nothing_came_before() -> None:
    assert name_pattern(sight(BEFORE[MINE] + 3 * ADDED, rows_of, before=None)) == "values"
