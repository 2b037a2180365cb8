"""Inductor's fallbacks, counted on every rank."""

from __future__ import annotations

from workers.protocol.words import Message, PatchState, Role


class FallbackOp(Message):
    """One operation that took the slow path. ``characters`` is 0 where the text for the log line was never made."""

    op: str
    calls: int
    slow_path_s: float
    characters: int


class RankFallback(Message):
    """The fallbacks that Inductor made on one rank: by way of its log line (``calls``) and past it (``fast_calls``).

    ``slow_path_s``: seconds that formatting took, of text of so many ``characters``. ``eager``: this torch makes the
    text although nobody reads the log. All are ``None`` where nobody could look, and ``reason`` says why. A rank that
    loads what was compiled before makes no fallbacks: its counts are 0, ``fast_calls`` too.
    """

    rank: int
    calls: int | None = None
    fast_calls: int | None = None
    slow_path_s: float | None = None
    characters: int | None = None
    eager: bool | None = None
    ops: list[FallbackOp] = []
    reason: str | None = None


class ArmFallback(Message):
    arm: Role
    ranks: list[RankFallback]


class Fallback(Message):
    """Sums over the ranks of ``arm``, which is the cold one where there is one; ``arms`` has all, rank by rank.

    A sum of which a part is not known is ``None``, and ``reason`` says why. ``state``: of the patch.
    """

    calls: int | None
    slow_path_s: float | None
    state: PatchState | None
    fast_calls: int | None = None
    characters: int | None = None
    eager: bool | None = None
    arm: Role | None = None
    reason: str | None = None
    arms: list[ArmFallback] = []
