"""What two arms answered, compared."""

from __future__ import annotations

from enum import StrEnum

from workers.protocol.words import Message, Role


class OutputClass(StrEnum):
    IDENTICAL = "identical"
    DRIFT = "drift"
    FLIP = "flip"
    GARBAGE = "garbage"


class Difference(Message):
    """The first token that differs in one request.

    ``margin``: by how much (log-probability) the other arm preferred its own token.
    """

    request: int
    position: int
    expected: int
    found: int
    margin: float | None


class OutputComparison(Message):
    """``klass`` is ``None`` when the two arms could not be compared; ``problem`` says why."""

    subject: Role
    against: Role
    klass: OutputClass | None
    problem: str | None = None
    compared_tokens: int
    worst_logprob_difference: float | None
    first_difference: Difference | None
