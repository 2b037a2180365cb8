"""What a comparison of residuals saw, as a map of sites and ranks. No I/O, no clock."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.dashboard.formats import number, plural

Json = Mapping[str, Any]

LOWEST, HIGHEST = -3, 6
"""Powers of ten of the scores at the lower and the upper end of the scale."""

LEFT, HEIGHT, GAP, BELOW = 60, 34, 3, 16
"""Of the drawing, in pixels: room for the ranks' names, a square, between squares, and for the sites' names."""

WIDE, NARROW, WIDEST = 720, 14, 72
"""The squares' width is what fits into the first, between the other two."""

CHARACTER = 7
STEPS = ((0.0, "s0"), (1.0, "s1"), (3.0, "s2"), (100.0, "s3"), (1e6, "s4"))
LEGEND = (
    ("s0", "0: the same bits"),
    ("s1", "up to 1: within the noise floor"),
    ("s2", "up to 3: passes, where bits may differ"),
    ("s3", "up to 100"),
    ("s4", "up to 10⁶"),
    ("s5", "more, or no number"),
)


@dataclass(frozen=True)
class Square:
    """``level``: how high it is filled, in pixels. ``first``: here the residual goes wrong first.

    ``mark``: a cross where the score is no number.
    """

    x: int
    y: int
    width: int
    fill_y: float
    level: float
    shade: str
    text: str
    first: bool
    mark: str


@dataclass(frozen=True)
class Label:
    x: float
    y: float
    text: str


@dataclass(frozen=True)
class ResidualMap:
    """``facts``: what was compared, in words. ``rows``: the same figures as a table."""

    title: str
    bitwise: bool | None
    worst: str
    facts: str
    missing: Sequence[str]
    width: int
    height: int
    squares: Sequence[Square]
    ranks: Sequence[Label]
    sites: Sequence[Label]
    rows: Sequence[Sequence[str]]
    first: Json | None
    records: Sequence[Json]


def residual_maps(residual: Json | None) -> list[ResidualMap]:
    """One for each comparison of a cell in the report; what is wrong comes first."""
    found = [] if residual is None else [_map(item) for item in residual["comparisons"]]
    return sorted(found, key=lambda item: item.first is None)


def _map(item: Json) -> ResidualMap:
    scores = item.get("scores", [])
    sites = list(dict.fromkeys(score["site"] for score in scores))
    ranks = sorted({score["rank"] for score in scores})
    width = max(NARROW, min(WIDEST, WIDE // max(1, len(sites))))
    return ResidualMap(
        title=f"{item['subject']} against {item['against']}",
        bitwise=item["bitwise_equal"],
        worst=number(item["worst_score"]),
        facts=_facts(item),
        missing=item["missing"],
        width=LEFT + len(sites) * width + CHARACTER * 6,
        height=len(ranks) * HEIGHT + BELOW,
        squares=[_square(score, item, sites, ranks, width) for score in scores],
        ranks=[Label(0, place * HEIGHT + HEIGHT / 2 + 4, f"rank {rank}") for place, rank in enumerate(ranks)],
        sites=_site_labels(sites, width, len(ranks) * HEIGHT + BELOW - 4),
        rows=[
            [score["site"], str(score["rank"]), *(number(score[key]) for key in ("median", "p99", "max", "floor"))]
            for score in scores
        ],
        first=item["first_divergence"],
        records=item.get("records", []),
    )


def _facts(item: Json) -> str:
    counts = ", ".join(plural(item[f"{word}s"], word) for word in ("site", "step", "rank"))
    held = "scattered" if item["scattered"] else "whole on each rank"
    floor = {"bitwise": "bit equality is owed", "measured": "held to a measured noise floor"}
    return f"{counts}, {held}; {floor.get(item.get('floor', ''), 'held to a modelled noise floor')}"


def _square(score: Json, item: Json, sites: Sequence[str], ranks: Sequence[int], width: int) -> Square:
    found = float(score["max"])
    level = round(_level(found) * (HEIGHT - GAP), 1)
    y = ranks.index(score["rank"]) * HEIGHT
    first = item["first_divergence"]
    here = (score["site"], score["rank"])
    said = f"{here[0]}, rank {here[1]}: largest score {number(score['max'])}, median {number(score['median'])}"
    return Square(
        x=LEFT + sites.index(score["site"]) * width,
        y=y,
        width=width - GAP,
        fill_y=y + HEIGHT - GAP - level,
        level=level,
        shade=shade(found),
        text=said,
        first=first is not None and (first["site"], first["rank"]) == here,
        mark="" if math.isfinite(found) else "×",
    )


def shade(score: float) -> str:
    """One of six, from the same bits to what no number is."""
    return next((name for most, name in STEPS if score <= most), "s5")


def _level(score: float) -> float:
    """From 0 to 1 by the score's logarithm; what differs at all can be seen."""
    if not math.isfinite(score):
        return 1.0
    if score <= 0:
        return 0.0
    return min(1.0, max(0.08, (math.log10(score) - LOWEST) / (HIGHEST - LOWEST)))


def _site_labels(sites: Sequence[str], width: int, y: int) -> list[Label]:
    """As many names as there is room for."""
    longest = max((len(site) for site in sites), default=0) * CHARACTER + 6
    every = max(1, math.ceil(longest / width))
    return [Label(LEFT + place * width, y, site) for place, site in enumerate(sites) if place % every == 0]
