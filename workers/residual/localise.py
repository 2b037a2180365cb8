"""Say of a wrong place what one needs to know: which tokens, since when, what is there instead, and in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from workers.protocol import REPLICAS_DIFFER, Divergence, Onset
from workers.residual.pair import Finding, Pair
from workers.residual.patterns import ROUNDING, Sight, name_pattern
from workers.residual.question import Spot
from workers.residual.rows import Rows
from workers.residual.sentences import sentence
from workers.residual.taps import site_name

JUMP = 10.0
"""A score so many times that of every site before it in its step came up at this site; a smaller one had grown."""

ROWS_NAMED = 16
"""Wrong tokens whose numbers are kept of one place."""


def locate(finding: Finding, pair: Pair, before: float) -> Divergence:
    """Describe ``finding``. ``before``: the largest score of the sites before it in its step."""
    pattern = finding.problem or (ROUNDING if _within_noise(finding, pair) else _pattern(finding, pair))
    spot = finding.spot
    first = pair.part(spot).start
    found = Divergence(
        site=site_name(spot.site),
        rank=spot.rank,
        step=spot.step,
        pattern=pattern,
        tokens=len(finding.wrong),
        score=finding.score,
        rows=[first + int(row) for row in finding.wrong[:ROWS_NAMED]],
        onset=onset(finding.score, before),
        confusion=confusion(pair, spot),
    )
    everywhere = _held_by_all(found, pair, spot)
    return found.model_copy(update={"sentence": sentence(found, pair.step(spot.step), everywhere)})


def _within_noise(finding: Finding, pair: Pair) -> bool:
    """Then there is no pattern to look for, which takes much longer than to compare."""
    question = pair.question
    return not question.bitwise and finding.score is not None and finding.score <= question.noise_factor


def onset(score: float | None, before: float) -> Onset:
    """Whether an error came up here or had grown over the sites before, whose largest score is ``before``."""
    return Onset.JUMP if score is None or score > JUMP * before else Onset.DRIFT


def confusion(pair: Pair, spot: Spot) -> list[list[float | None]]:
    """Relative error of each rank's part (row) against the part that belongs to each rank (column)."""
    if not pair.question.scattered_at(spot.step, spot.site):
        return []
    places = [Spot(spot.step, spot.site, rank) for rank in range(pair.ranks)]
    held = [_own(pair, place) for place in places]
    expected = [pair.expected(place) for place in places]
    return [[_distance(one, other) for other in expected] for one in held]


def _distance(one: Rows | None, other: Rows | None) -> float | None:
    if one is None or other is None or len(one) != len(other) or not one.comparable(other):
        return None
    return one.hold(other).distance


def _own(pair: Pair, spot: Spot) -> Rows | None:
    """What the rank holds, without padding."""
    held = pair.held(spot)
    return None if held is None else held.part(0, pair.part(spot).tokens)


def _pattern(finding: Finding, pair: Pair) -> str:
    spot = finding.spot
    got, whole = _own(pair, spot), pair.whole(spot)
    if got is None or whole is None:
        raise ValueError(f"{spot} was not compared: it has no pattern")
    scattered = pair.question.scattered_at(spot.step, spot.site)
    places = [Spot(spot.step, spot.site, rank) for rank in range(pair.ranks)]
    parts = [pair.part(place) for place in places]
    copies = [] if scattered else [rows for rows in (_own(pair, place) for place in places) if rows is not None]
    floor = pair.question.noise_factor * pair.question.floor(got, spot.site)
    return name_pattern(
        Sight(
            got=got,
            wrong=finding.wrong,
            slices=[whole.part(part.start, part.stop) for part in parts],
            rank=spot.rank,
            whole=whole,
            start=parts[spot.rank].start,
            before=_site_before(pair, spot),
            earlier=list(_earlier(pair, spot, got)),
            copies=[rows for rows in copies if len(rows) == len(got) and rows.comparable(got)],
            close=0.0 if pair.question.bitwise else floor,
            rounding=floor,
        )
    )


def _site_before(pair: Pair, spot: Spot) -> tuple[str, Rows] | None:
    """What belongs to this rank at the site before, rows of the same tokens."""
    whole = pair.whole(Spot(spot.step, spot.site - 1, spot.rank)) if spot.site else None
    mine = pair.part(spot)
    return None if whole is None else (site_name(spot.site - 1), whole.part(mine.start, mine.stop))


def _earlier(pair: Pair, spot: Spot, got: Rows) -> Sequence[tuple[int, Rows]]:
    """What this rank held at this site in the steps before, the last one first."""
    held = [(step, pair.held(Spot(step, spot.site, spot.rank))) for step in range(spot.step - 1, -1, -1)]
    return [(step, rows) for step, rows in held if rows is not None and rows.comparable(got)]


def _held_by_all(found: Divergence, pair: Pair, spot: Spot) -> bool:
    """Every rank holds the part of one."""
    if not found.pattern.startswith("slice-of-rank-") or pair.ranks == 1:
        return False
    owner = int(found.pattern.rpartition("-")[2])
    column = [row[owner] for row in found.confusion]
    limit = 0.0 if pair.question.bitwise else pair.question.noise_factor * _floor(pair, spot)
    return all(error is not None and error <= limit for error in column)


def _floor(pair: Pair, spot: Spot) -> float:
    held = pair.held(spot)
    return 0.0 if held is None else pair.question.floor(held, spot.site)


def locate_replica(pair: Pair, spot: Spot, rows: Sequence[int], score: float | None) -> Divergence:
    """Describe a rank whose copy is not that of rank 0; ``rows`` are those that differ."""
    found = Divergence(
        site=site_name(spot.site),
        rank=spot.rank,
        step=spot.step,
        pattern=REPLICAS_DIFFER,
        tokens=len(rows),
        score=score if score is None or math.isfinite(score) else None,
        rows=list(rows[:ROWS_NAMED]),
    )
    return found.model_copy(update={"sentence": sentence(found, pair.step(spot.step), False)})
