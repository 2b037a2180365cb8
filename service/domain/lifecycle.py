"""How far a sweep, a cell and a run got. What was *found* is the verdict's business, see ``service.domain.verdict``.

A pure state machine. Events come in, each with its cause; the next course and instructions come out, which the
dispatcher carries out::

    course, instructions = handle(course, Event(Kind.LOSE, "the actor is gone"), Limits(attempts=3))

One table (``service.domain.transitions``) says what may happen. *Failed* is the engine's fault and final; *crashed* is
the infrastructure's, and before a job ends so it is queued again, up to a limit.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from service.domain.transitions import RULES, Do, Kind, Level, Rule, State, SweepState

__all__ = [
    "TRANSITIONS",
    "Course",
    "Do",
    "Event",
    "Instruction",
    "InvalidTransition",
    "Kind",
    "Level",
    "Limits",
    "State",
    "SweepState",
    "handle",
    "step",
]

LONGEST_STORY = 12
"""Events that a course remembers. A cell that is run again and again would have an endless one."""


def _steps(level: Level, before: State) -> frozenset[StrEnum]:
    found = [rule for (of, state, _), rule in RULES.items() if (of, state) == (level, before)]
    return frozenset(after for rule in found for after in rule.leads_to)


TRANSITIONS: dict[Level, dict[State, frozenset[StrEnum]]] = {
    level: {state: _steps(level, state) for state in State} for level in (Level.JOB, Level.RUN)
}
"""Every step that a job (a cell, a shared arm) and a run may take."""


@dataclass(frozen=True)
class Limits:
    """``attempts``: so many runs of a job may be lost. After the n-th it waits ``backoff_s`` · 2^(n-1) seconds."""

    attempts: int = 3
    backoff_s: float = 1.0


@dataclass(frozen=True)
class Event:
    """Something that happened, and why."""

    kind: Kind
    cause: str

    def __str__(self) -> str:
        return f"{self.kind} ({self.cause})"


@dataclass(frozen=True)
class Instruction:
    """What is to be done. ``cause``: that of the event. ``after_s``: how long a queued job has to wait."""

    do: Do
    cause: str
    after_s: float = 0.0


@dataclass(frozen=True)
class Course:
    """How far ``subject`` came, and how. ``lost``: runs of it that were lost. ``story``: its events, newest last."""

    level: Level
    subject: str
    state: State | SweepState
    lost: int = 0
    story: tuple[str, ...] = field(default=(), compare=False)


class InvalidTransition(ValueError):
    """A step that the table does not have: somebody acts on an old picture of the sweep, the cell or the run."""

    @classmethod
    def to(cls, subject: str, level: Level, before: State, after: State) -> InvalidTransition:
        allowed = ", ".join(sorted(TRANSITIONS[level][before])) or "nothing, it has ended"
        return cls(f"{subject} is {before} and cannot become {after}; from here it may become: {allowed}")

    @classmethod
    def by(cls, course: Course, event: Event) -> InvalidTransition:
        possible = sorted(kind for level, state, kind in RULES if (level, state) == (course.level, course.state))
        story = ", then ".join(course.story) or "nothing is known to have happened to it"
        return cls(
            f"{course.subject} is {course.state} and cannot be {event}. So far: {story}. "
            f"From here it can be: {', '.join(possible) or 'nothing more, this is its end'}"
        )


def handle(course: Course, event: Event, limits: Limits = Limits()) -> tuple[Course, tuple[Instruction, ...]]:
    """What becomes of ``course`` by ``event``, and what is to be done.

    Raises:
        InvalidTransition: where the table has no such event in this state.
    """
    rule = RULES.get((course.level, course.state, event.kind))
    if rule is None:
        raise InvalidTransition.by(course, event)
    lost = _lost(course, event)
    if rule.last is not None and lost >= limits.attempts:
        rule = rule.last
    after_s = limits.backoff_s * 2 ** (lost - 1) if event.kind is Kind.LOSE else 0.0
    story = (*course.story, str(event))[-LONGEST_STORY:]
    return replace(course, state=rule.after, lost=lost, story=story), _instructions(rule, event, after_s)


def _lost(course: Course, event: Event) -> int:
    """Whoever asks for a cell again gives it all its attempts again."""
    if event.kind is Kind.RERUN:
        return 0
    return course.lost + (event.kind is Kind.LOSE)


def _instructions(rule: Rule, event: Event, after_s: float) -> tuple[Instruction, ...]:
    return tuple(Instruction(do, event.cause, after_s if do is Do.QUEUE else 0.0) for do in rule.do)


def step(subject: str, before: State, after: State, level: Level = Level.JOB) -> State:
    """``after`` if the table leads there from ``before``.

    Raises:
        InvalidTransition: if it does not.
    """
    if after not in TRANSITIONS[level][before]:
        raise InvalidTransition.to(subject, level, before, after)
    return after
