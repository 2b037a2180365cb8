"""How far a cell or a run got. What was *found* is the verdict's business, see ``service.domain.verdict``."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    QUEUED = "queued"
    LEASED = "leased"
    AUDITING = "auditing"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return not TRANSITIONS[self]


_ENDS = frozenset({State.FINISHED, State.FAILED, State.CRASHED, State.TIMED_OUT, State.CANCELLED})

TRANSITIONS: dict[State, frozenset[State]] = {
    State.QUEUED: frozenset({State.LEASED, State.CANCELLED, State.FINISHED, State.CRASHED}),
    State.LEASED: frozenset({State.RUNNING, State.QUEUED, State.CRASHED, State.CANCELLED}),
    State.AUDITING: frozenset({State.QUEUED, State.FAILED, State.CRASHED, State.CANCELLED}),
    State.RUNNING: _ENDS,
    **{end: frozenset() for end in _ENDS},
}
"""Every step that may be taken. A queued cell ends without a lease when its result comes from another cell, or when
its engine environment cannot run it."""


class InvalidTransition(ValueError):
    """A step that the table does not have: somebody acts on an old picture of the cell."""

    def __init__(self, subject: str, before: State, after: State) -> None:
        allowed = ", ".join(sorted(TRANSITIONS[before])) or "nothing, it has ended"
        super().__init__(f"{subject} is {before} and cannot become {after}; from here it may become: {allowed}")


def step(subject: str, before: State, after: State) -> State:
    """``after`` if the table allows it.

    Raises:
        InvalidTransition: if it does not.
    """
    if after not in TRANSITIONS[before]:
        raise InvalidTransition(subject, before, after)
    return after
