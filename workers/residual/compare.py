"""Compare the residual of one arm with that of another, at every step, site and rank.

Where the sum over the ranks has one order only (two ranks), bit equality is owed. Elsewhere the error is scored
against a modelled noise floor, see :func:`noise_floor`.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from workers.protocol import Divergence, Floor, Residual, Role, SiteScore
from workers.residual import measure
from workers.residual.patterns import name_pattern
from workers.residual.taps import TapSet, site_name
from workers.residual.unshard import Part, part

ONE_ORDER = 2
"""Up to so many ranks a sum over them has one order."""

LARGEST_SCORE = 1e30
"""Stands for an infinite score, which JSON cannot carry."""


@dataclass(frozen=True)
class Question:
    """What is compared. ``scattered``: the subject holds the residual by tokens over its ranks (SP).

    ``noise_factor``: a score up to this passes where bit equality is not owed. ``noise``: per site the relative error
    that scores 1, where it was measured; elsewhere :func:`noise_floor` is taken. ``steps``: those in which both arms
    were given the same tokens; all, if nothing is said.
    """

    subject: Role
    against: Role
    scattered: bool
    bitwise: bool
    sites: int
    noise_factor: float
    noise: tuple[float, ...] | None = None
    steps: frozenset[int] | None = None

    def floor(self, dtype: torch.dtype, site: int) -> float:
        """The relative error that scores 1 at ``site``. Never below the last digit of ``dtype``."""
        if self.noise is None:
            return noise_floor(dtype, site)
        return max(self.noise[site], torch.finfo(dtype).eps)


@dataclass(frozen=True)
class Spot:
    step: int
    site: int
    rank: int


@dataclass(frozen=True)
class Finding:
    """One tensor compared. ``wrong`` counts its differing rows; ``score`` is ``None`` where no number can be given."""

    spot: Spot
    elements: int
    equal: bool
    wrong: int
    score: float | None
    pattern: str


def compare(subject: TapSet, control: TapSet, question: Question) -> Residual:
    """Hold every recorded residual of ``subject`` against ``control``, whose rank 0 holds the whole of it.

    Raises:
        ValueError: when both are the same recording: nothing would be compared.
    """
    if subject.folder.resolve() == control.folder.resolve():
        raise ValueError(f"{subject.folder} is held against itself: nothing would be compared")
    wholes = _wholes(control, question.sites)
    missing = _missing(subject, control, wholes, question.sites)
    findings = list(_findings(subject, control, wholes, question))
    faults = [finding for finding in findings if _is_fault(finding, question)]
    replicas = None if question.scattered else _replicas_equal(findings, subject)
    return Residual(
        subject=question.subject,
        against=question.against,
        sites=len({finding.spot.site for finding in findings}),
        steps=len({finding.spot.step for finding in findings}),
        ranks=len({finding.spot.rank for finding in findings}),
        tokens=sum(subject.tokens[step] for step in _compared_steps(subject, control, question)),
        elements=sum(finding.elements for finding in findings),
        scattered=question.scattered,
        missing=missing,
        bitwise_equal=all(finding.equal for finding in findings) if findings else None,
        bitwise_required=question.bitwise,
        worst_score=_worst(findings),
        floor=_kind_of_floor(question),
        scores=_scores(findings, subject, question),
        replicas_equal=replicas,
        first_divergence=_divergence(faults[0]) if faults else _replica_divergence(subject, question),
        steps_left_out=len(subject.tokens) - len(_compared_steps(subject, control, question)),
    )


def noise_floor(dtype: torch.dtype, site: int) -> float:
    """Modelled relative error that rounding alone makes at ``site``: 4 · eps · √(site + 1).

    A model, not a measurement: right sums in another order were seen to stay below it in float32.
    """
    return 4.0 * torch.finfo(dtype).eps * math.sqrt(site + 1)


Wholes = dict[tuple[int, int], torch.Tensor]
"""The residual as it should be, by step and site."""


def _wholes(control: TapSet, sites: int) -> Wholes:
    """What of ``control`` can be compared with: there for all tokens, and itself made of numbers."""
    found = {}
    for step, tokens in enumerate(control.tokens):
        for site in range(sites):
            whole = control.at(0, step, site)
            if whole is not None and len(whole) >= tokens and measure.finite(whole[:tokens]):
                found[step, site] = whole
    return found


def _missing(subject: TapSet, control: TapSet, wholes: Wholes, sites: int) -> list[str]:
    """What should have been compared and cannot be."""
    if not subject.tokens:
        return ["no step was recorded"]
    if subject.tokens != control.tokens:
        return [f"the two arms ran different steps: {subject.tokens} and {control.tokens} tokens"]
    gaps = []
    for step in range(len(subject.tokens)):
        for site in range(sites):
            gaps += [
                f"step {step}, site {site_name(site)}, rank {rank}"
                for rank in range(len(subject.ranks))
                if subject.at(rank, step, site) is None
            ]
            if (step, site) not in wholes:
                of_it = "of the arm compared with: not complete, or not finite"
                gaps.append(f"step {step}, site {site_name(site)} {of_it}")
    return gaps


def _findings(subject: TapSet, control: TapSet, wholes: Wholes, question: Question) -> Iterator[Finding]:
    ranks = len(subject.ranks)
    for step in _compared_steps(subject, control, question):
        tokens = subject.tokens[step]
        for site in range(question.sites):
            whole = wholes.get((step, site))
            for rank in range(ranks):
                found = subject.at(rank, step, site)
                if found is None or whole is None:
                    continue
                expected_parts = [part(tokens, ranks, other, question.scattered) for other in range(ranks)]
                yield _hold(Spot(step, site, rank), found, whole, expected_parts, question)


def _compared_steps(subject: TapSet, control: TapSet, question: Question) -> list[int]:
    common = range(len(_common_steps(subject, control)))
    return [step for step in common if question.steps is None or step in question.steps]


def _common_steps(subject: TapSet, control: TapSet) -> list[int]:
    """Tokens of the steps that both ran: once they differ, nothing after can be held against each other."""
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(subject.tokens, control.tokens, strict=False))
    return [tokens for tokens, _ in pairs]


def _hold(spot: Spot, found: torch.Tensor, whole: torch.Tensor, parts: list[Part], question: Question) -> Finding:
    mine = parts[spot.rank]
    expected = whole[mine.start : mine.stop]
    if found.shape[1:] != whole.shape[1:]:
        widths = f"rows of {list(found.shape[1:])} numbers where {list(whole.shape[1:])} belong"
        return Finding(spot, 0, False, mine.tokens, None, f"wrong-size: {widths}")
    if not _fits(found, mine, question.scattered):
        return Finding(spot, 0, False, mine.tokens, None, f"wrong-size: {len(found)} rows where {mine.rows} belong")
    # A reference in full precision is held against in full precision; the floor is that of what was recorded.
    got = found[: mine.tokens].to(expected.dtype)
    if measure.equal(got, expected):
        return Finding(spot, got.numel(), True, 0, 0.0, "equal")
    wrong = measure.differing_rows(got, expected)
    slices = [whole[other.start : other.stop] for other in parts]
    score = _score(got, expected, question.floor(found.dtype, spot.site))
    return Finding(spot, got.numel(), False, wrong, score, name_pattern(got, slices, spot.rank))


def _fits(found: torch.Tensor, mine: Part, scattered: bool) -> bool:
    """A replicated tensor may carry padding rows; a part has exactly the rows that belong to it."""
    return len(found) == mine.rows or (not scattered and len(found) > mine.rows)


def relative_error(got: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest difference over largest number of ``expected``: how wrong a part of the residual is, as a whole."""
    scale = measure.largest(expected)
    error = measure.largest_difference(got, expected)
    if scale == 0.0:
        return 0.0 if error == 0.0 else LARGEST_SCORE
    return error / scale


def _score(got: torch.Tensor, expected: torch.Tensor, floor: float) -> float | None:
    if not measure.finite(got) or not measure.finite(expected):
        return None
    return min(relative_error(got, expected) / floor, LARGEST_SCORE)


def _kind_of_floor(question: Question) -> Floor:
    if question.bitwise:
        return Floor.BITWISE
    return Floor.MODELLED if question.noise is None else Floor.MEASURED


def _scores(findings: list[Finding], subject: TapSet, question: Question) -> list[SiteScore]:
    """Per site and rank, over the steps. Raw, so that another policy can be applied to them later."""
    groups: dict[tuple[int, int], list[float]] = {}
    for finding in findings:
        score = LARGEST_SCORE if finding.score is None else finding.score
        groups.setdefault((finding.spot.site, finding.spot.rank), []).append(score)
    return [
        SiteScore(
            site=site_name(site),
            rank=rank,
            floor=question.floor(_dtype(subject, rank, site), site),
            median=statistics.median(scores),
            p99=sorted(scores)[math.ceil(0.99 * len(scores)) - 1],
            max=max(scores),
        )
        for (site, rank), scores in sorted(groups.items())
    ]


def _dtype(subject: TapSet, rank: int, site: int) -> torch.dtype:
    return next(tensor.dtype for key, tensor in subject.ranks[rank].items() if key.endswith(f"/{site}"))


def _is_fault(finding: Finding, question: Question) -> bool:
    if finding.equal:
        return False
    return question.bitwise or finding.score is None or finding.score > question.noise_factor


def _worst(findings: list[Finding]) -> float | None:
    scores = [LARGEST_SCORE if finding.score is None else finding.score for finding in findings]
    return max(scores, default=None)


def _divergence(finding: Finding) -> Divergence:
    spot = finding.spot
    return Divergence(
        site=site_name(spot.site),
        rank=spot.rank,
        step=spot.step,
        pattern=finding.pattern,
        tokens=finding.wrong,
        score=finding.score,
    )


def _replicas(subject: TapSet, sites: int) -> Iterator[tuple[Spot, int]]:
    """Where a rank's copy is not rank 0's, with the number of rows that differ."""
    for step, tokens in enumerate(subject.tokens):
        for site in range(sites):
            first = subject.at(0, step, site)
            for rank in range(1, len(subject.ranks)):
                other = subject.at(rank, step, site)
                if first is None or other is None:
                    continue
                if first[:tokens].shape != other[:tokens].shape:
                    yield Spot(step, site, rank), tokens
                elif not torch.equal(first[:tokens], other[:tokens]):
                    yield Spot(step, site, rank), int((first[:tokens] != other[:tokens]).any(dim=-1).sum())


def _replicas_equal(findings: list[Finding], subject: TapSet) -> bool | None:
    if not findings or len(subject.ranks) < 2:
        return None
    sites = max(finding.spot.site for finding in findings) + 1
    return next(_replicas(subject, sites), None) is None


def _replica_divergence(subject: TapSet, question: Question) -> Divergence | None:
    """The first rank whose copy is not rank 0's.

    Two ranks add up in one order and have to agree to the bit. Of more, each may add up in an order of its own, and
    only a difference beyond the noise is a fault.
    """
    if question.scattered:
        return None
    for spot, rows in _replicas(subject, question.sites):
        score = _replica_score(subject, spot, question)
        if len(subject.ranks) > ONE_ORDER and score is not None and score <= question.noise_factor:
            continue
        return Divergence(
            site=site_name(spot.site),
            rank=spot.rank,
            step=spot.step,
            pattern="replicas-differ",
            tokens=rows,
            score=score,
        )
    return None


def _replica_score(subject: TapSet, spot: Spot, question: Question) -> float | None:
    tokens = subject.tokens[spot.step]
    first, other = (subject.at(rank, spot.step, spot.site) for rank in (0, spot.rank))
    if first is None or other is None or first[:tokens].shape != other[:tokens].shape:
        return None
    return _score(other[:tokens], first[:tokens], question.floor(other.dtype, spot.site))
