"""What the comparison of two residual streams saw, and what has to hold without any tolerance."""

from __future__ import annotations

from enum import StrEnum

from workers.protocol.words import Message, Role


class Onset(StrEnum):
    """How an error comes up from one site to the next."""

    JUMP = "jump"
    DRIFT = "drift"


class Divergence(Message):
    """The first place where the residual is wrong, in the order step, site, rank.

    ``tokens`` counts the wrong rows of that step on that rank, ``rows`` holds the first of their numbers within the
    step. ``score`` is the relative error in units of the noise floor; it is ``None`` where the numbers cannot be
    compared (NaN, wrong size). ``onset``: whether the score jumps here or has grown over the sites before.
    ``confusion[i][j]``: relative error of rank i's part against the part that belongs to rank j, ``None`` where their
    sizes differ or a number is not finite; empty where the residual is not scattered. ``sentence`` says all of it in
    plain words.
    """

    site: str
    rank: int
    step: int
    pattern: str
    tokens: int
    score: float | None
    rows: list[int] = []
    onset: Onset | None = None
    confusion: list[list[float | None]] = []
    sentence: str = ""


class Floor(StrEnum):
    """What a residual is held to: bit equality, a noise floor that was measured, or one that is modelled."""

    BITWISE = "bitwise"
    MEASURED = "measured"
    MODELLED = "modelled"


class SiteScore(Message):
    """Scores of the tokens of one site on one rank over all steps.

    A token's score is the relative error of its residual, ‖x - y‖ / ‖y‖, divided by ``floor``.
    """

    site: str
    rank: int
    floor: float
    median: float
    p99: float
    max: float


class Residual(Message):
    """What the comparison of ``subject``'s residual with ``against``'s saw.

    ``sites``, ``steps``, ``ranks`` and ``tokens`` (over all steps) count what was compared, ``elements`` how many
    numbers; ``missing`` lists what should have been compared and was not. ``scattered``: the subject's ranks hold parts
    of the residual (SP); otherwise each holds the whole, and ``replicas_equal`` says whether they agree.
    ``steps_left_out``: steps in which the two arms were given different tokens, since their outputs had parted before.

    ``scattered_rows`` and ``replicated_rows`` count the tokens over steps and sites, by whether each rank held a part
    there or all of them. ``sketched``: of each token a sketch was compared, ``elements`` counts its numbers.
    ``records``: each place that scores higher than every place before it. Whatever the noise factor, the first place
    above it is one of them, so that another factor can be applied later. ``wrong_steps`` counts the steps with a place
    that is not equal (or, where bit equality is not owed, scores above the noise factor). ``seeds``: of the perturbed
    runs in which the floor was measured.
    """

    subject: Role
    against: Role
    sites: int
    steps: int
    ranks: int
    tokens: int
    elements: int
    scattered: bool
    missing: list[str]
    bitwise_equal: bool | None
    bitwise_required: bool
    worst_score: float | None
    floor: Floor = Floor.MODELLED
    scores: list[SiteScore] = []
    replicas_equal: bool | None
    first_divergence: Divergence | None
    steps_left_out: int = 0
    scattered_rows: int | None = None
    replicated_rows: int | None = None
    sketched: bool = False
    records: list[Divergence] = []
    wrong_steps: int = 0
    seeds: list[int] = []


class Invariant(Message):
    """What has to hold without any tolerance, in the residual or the graphs of ``arm``.

    ``held`` is ``None`` where nothing could be checked; ``detail`` says why, or what was seen. ``checked`` counts the
    single comparisons.
    """

    name: str
    held: bool | None
    checked: int
    detail: str
    arm: Role = Role.PROBE
