"""Compare the residual of one arm with that of another: every token, at every step, site and rank.

Where the sum over the ranks has one order only (two ranks), bit equality is owed. Elsewhere each token is scored: the
relative error of its residual, divided by a noise floor, see :meth:`workers.residual.question.Question.floor`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from workers.protocol import ONE_ORDER, Divergence, Residual, SiteScore
from workers.residual.localise import locate, locate_replica
from workers.residual.pair import Finding, Pair
from workers.residual.question import LARGEST_SCORE, Question, Spot, noise_floor
from workers.residual.rows import Held, Rows, SketchRows
from workers.residual.sentences import why_not_the_same
from workers.residual.taps import TapSet, site_name
from workers.residual.unshard import Part

__all__ = ["LARGEST_SCORE", "Finding", "Question", "Spot", "compare", "noise_floor"]


def compare(subject: TapSet, control: TapSet, question: Question) -> Residual:
    """Hold every recorded residual of ``subject`` against ``control``, whose rank 0 holds the whole of it.

    Raises:
        ValueError: when both are the same recording: nothing would be compared.
    """
    if subject.folder.resolve() == control.folder.resolve():
        raise ValueError(f"{subject.folder} is held against itself: nothing would be compared")
    pair = Pair(subject, control, question)
    tally = _Tally(pair)
    for finding in _findings(pair):
        tally.add(finding)
    return tally.result()


@dataclass
class _Tally:
    """Counts findings as they come, and keeps what has to be said of them."""

    pair: Pair
    findings: list[Finding] = field(default_factory=list)
    records: list[Divergence] = field(default_factory=list)
    highest: float = -1.0
    step: int = -1
    site: int = -1
    before: float = 0.0
    here: float = 0.0

    def add(self, finding: Finding) -> None:
        self.findings.append(finding)
        self._follow(finding)
        score = _number(finding)
        if not finding.equal and score > self.highest:
            self.highest = score
            self.records.append(locate(finding, self.pair, self.before))
        self.here = max(self.here, score)

    def _follow(self, finding: Finding) -> None:
        """Keep the largest score of the sites before this one in its step."""
        spot = finding.spot
        if spot.step != self.step:
            self.before = self.here = 0.0
        elif spot.site != self.site:
            self.before = max(self.before, self.here)
            self.here = 0.0
        self.step, self.site = spot.step, spot.site

    def result(self) -> Residual:
        subject, question, findings = self.pair.subject, self.pair.question, self.findings
        rows = {True: 0, False: 0}
        for step, site in {(finding.spot.step, finding.spot.site) for finding in findings}:
            rows[question.scattered_at(step, site)] += subject.tokens[step]
        faults = [finding for finding in findings if _is_fault(finding, question)]
        return Residual(
            subject=question.subject,
            against=question.against,
            sites=len({finding.spot.site for finding in findings}),
            steps=len({finding.spot.step for finding in findings}),
            ranks=len({finding.spot.rank for finding in findings}),
            tokens=sum(subject.tokens[step] for step in self.pair.steps),
            elements=sum(finding.elements for finding in findings),
            scattered=question.scattered,
            missing=_missing(self.pair),
            bitwise_equal=all(finding.equal for finding in findings) if findings else None,
            bitwise_required=question.bitwise,
            worst_score=max(map(_number, findings), default=None),
            floor=question.kind_of_floor,
            scores=_scores(findings, self.pair),
            replicas_equal=_replicas_equal(self.pair) if findings else None,
            first_divergence=self._first(bool(faults), len({fault.spot.step for fault in faults})),
            steps_left_out=len(subject.tokens) - len(self.pair.steps),
            scattered_rows=rows[True],
            replicated_rows=rows[False],
            sketched=_is_sketched(self.pair),
            records=self.records,
            wrong_steps=len({fault.spot.step for fault in faults}),
            seeds=list(question.seeds),
        )

    def _first(self, faulty: bool, wrong_steps: int) -> Divergence | None:
        question = self.pair.question
        if not faulty:
            return _replica_divergence(self.pair)
        first = next(record for record in self.records if is_wrong(record.score, question))
        if question.subject is question.against:
            cause = why_not_the_same(first, wrong_steps, len(self.pair.steps))
            return first.model_copy(update={"sentence": f"{first.sentence}; {cause}"})
        return first


def is_wrong(score: float | None, question: Question) -> bool:
    """Of a place that is not equal: whether its score makes it a fault."""
    return question.bitwise or score is None or score > question.noise_factor


def _is_fault(finding: Finding, question: Question) -> bool:
    return not finding.equal and is_wrong(finding.score, question)


def _number(finding: Finding) -> float:
    return LARGEST_SCORE if finding.score is None else finding.score


# --- what there is ---------------------------------------------------------------------------------------------------


def _missing(pair: Pair) -> list[str]:
    """What should have been compared and cannot be."""
    subject, control = pair.subject, pair.control
    if not subject.tokens:
        return ["no step was recorded"]
    if subject.tokens != control.tokens:
        return [f"the two arms ran different steps: {subject.tokens} and {control.tokens} tokens"]
    gaps = []
    for step in range(len(subject.tokens)):
        for site in range(pair.question.sites):
            spots = [Spot(step, site, rank) for rank in range(pair.ranks)]
            place = f"step {step}, site {site_name(site)}"
            gaps += [f"{place}, rank {spot.rank}" for spot in spots if pair.held(spot) is None]
            if any(pair.whole(spot) is None for spot in spots):
                gaps.append(f"{place} of the arm compared with: not complete, or not finite")
    return gaps


def _is_sketched(pair: Pair) -> bool:
    held = (pair.held(spot) for spot in pair.places())
    return isinstance(next((rows for rows in held if rows is not None), None), SketchRows)


def _findings(pair: Pair) -> Iterator[Finding]:
    for spot in pair.places():
        found, whole = pair.held(spot), pair.whole(spot)
        if found is not None and whole is not None:
            yield _hold(spot, found, whole, pair.part(spot), pair.question)


# --- one place -------------------------------------------------------------------------------------------------------


def _hold(spot: Spot, found: Rows, whole: Rows, mine: Part, question: Question) -> Finding:
    problem = _problem(spot, found, whole, mine, question)
    if problem is not None:
        return Finding(spot, 0, 0, False, torch.arange(mine.tokens), torch.empty(0), None, problem)
    got, expected = found.part(0, mine.tokens), whole.part(mine.start, mine.stop)
    elements = len(got) * got.width
    if got.equal(expected):
        nothing = torch.empty(0, dtype=torch.int64)
        return Finding(spot, len(got), elements, True, nothing, torch.zeros(len(got), dtype=torch.float64), 0.0)
    held = got.hold(expected)
    scores = _token_scores(held, question.floor(got, spot.site))
    score = float(scores.max()) if held.error.isfinite().all() or got.finite() else None
    return Finding(spot, len(got), elements, False, _wrong(held, scores, question), scores, score)


def _token_scores(held: Held, floor: float) -> torch.Tensor:
    return (held.error / floor).clamp(max=LARGEST_SCORE)


def _wrong(held: Held, scores: torch.Tensor, question: Question) -> torch.Tensor:
    """Rows beyond the noise where bits may differ and there are any; else all that are not equal."""
    beyond = scores > question.noise_factor
    wrong = ~held.equal if question.bitwise or not bool(beyond.any()) else beyond
    return wrong.nonzero().flatten()


def _problem(spot: Spot, found: Rows, whole: Rows, mine: Part, question: Question) -> str | None:
    """Why the rows that were found cannot be those that belong there."""
    if not found.comparable(whole):
        return f"wrong-size: rows of [{found.width}] numbers where [{whole.width}] belong"
    scattered = question.scattered_at(spot.step, spot.site)
    if _fits(found, mine, scattered):
        return None
    if scattered and len(found) >= len(whole) and _alike(found.part(0, len(whole)), whole, spot, question):
        return "replicated-where-scattered"
    if not scattered and _is_a_part(found, whole, spot, question):
        return "scattered-where-replicated"
    return f"wrong-size: {len(found)} rows where {mine.rows} belong"


def _fits(found: Rows, mine: Part, scattered: bool) -> bool:
    """A replicated tensor may carry padding rows; a part has exactly the rows that belong to it."""
    return len(found) == mine.rows or (not scattered and len(found) > mine.rows)


def _is_a_part(found: Rows, whole: Rows, spot: Spot, question: Question) -> bool:
    """``found`` is the rank's consecutive share of ``whole``, rows of padding aside."""
    start = len(found) * spot.rank
    share = whole.part(start, start + len(found))
    return len(share) > 0 and _alike(found.part(0, len(share)), share, spot, question)


def _alike(found: Rows, expected: Rows, spot: Spot, question: Question) -> bool:
    if found.equal(expected):
        return True
    limit = question.noise_factor * question.floor(found, spot.site)
    return not question.bitwise and found.hold(expected).worst <= limit


# --- scores ----------------------------------------------------------------------------------------------------------


def _scores(findings: Sequence[Finding], pair: Pair) -> list[SiteScore]:
    """Per site and rank, over the tokens of all steps. Raw, so that another policy can be applied to them later."""
    groups: dict[tuple[int, int], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.spot.site, finding.spot.rank), []).append(finding)
    return [_site_score(group, pair) for _, group in sorted(groups.items())]


def _site_score(group: Sequence[Finding], pair: Pair) -> SiteScore:
    spot = group[0].spot
    refused = [LARGEST_SCORE for finding in group if finding.problem]
    scores = torch.cat([finding.scores.double() for finding in group] + [torch.tensor(refused, dtype=torch.float64)])
    ordered = scores.sort().values if len(scores) else torch.zeros(1, dtype=torch.float64)
    held = pair.held(spot)
    if held is None:
        raise ValueError(f"{spot} was not compared: it has no score")
    return SiteScore(
        site=site_name(spot.site),
        rank=spot.rank,
        floor=pair.question.floor(held, spot.site),
        median=float(ordered.median()),
        p99=float(ordered[math.ceil(0.99 * len(ordered)) - 1]),
        max=float(ordered[-1]),
    )


# --- copies ----------------------------------------------------------------------------------------------------------


def _replicas(pair: Pair) -> Iterator[tuple[Spot, list[int], float | None]]:
    """Where a rank's copy is not rank 0's, with the rows that differ and their largest score."""
    for spot in pair.places():
        if spot.rank == 0 or pair.question.scattered_at(spot.step, spot.site):
            continue
        first, other = pair.held(Spot(spot.step, spot.site, 0)), pair.held(spot)
        if first is None or other is None:
            continue
        tokens = pair.subject.tokens[spot.step]
        one, copy = first.part(0, tokens), other.part(0, tokens)
        if len(one) != len(copy) or not copy.comparable(one):
            yield spot, list(range(tokens)), None
        elif not copy.equal(one):
            held = copy.hold(one)
            score = held.worst / pair.question.floor(copy, spot.site)
            yield spot, (~held.equal).nonzero().flatten().tolist(), score if math.isfinite(score) else None


def _replicas_equal(pair: Pair) -> bool | None:
    """``None`` where no rank holds a copy of another's."""
    copies = any(not pair.question.scattered_at(spot.step, spot.site) for spot in pair.places())
    if pair.ranks < 2 or not copies or pair.question.by_rank:
        return None
    return next(_replicas(pair), None) is None


def _replica_divergence(pair: Pair) -> Divergence | None:
    """The first rank whose copy is not rank 0's.

    Two ranks add up in one order and have to agree to the bit. Of more, each may add up in an order of its own, and
    only a difference beyond the noise is a fault.
    """
    if pair.question.by_rank:
        return None
    for spot, rows, score in _replicas(pair):
        if pair.ranks > ONE_ORDER and score is not None and score <= pair.question.noise_factor:
            continue
        return locate_replica(pair, spot, rows, score)
    return None
