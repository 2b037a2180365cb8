"""The one table of the lifecycle: in which state what may happen, where it leads, and what is to be done then."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Of cells, shared arms and runs."""

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
        return self in ENDS


class SweepState(StrEnum):
    ACTIVE = "active"
    ENDED = "ended"


class Level(StrEnum):
    """Whose lifecycle. A job is a cell or a shared arm: it may be run more than once. A run is one attempt at it."""

    SWEEP = "sweep"
    JOB = "job"
    RUN = "run"


class Kind(StrEnum):
    """What can happen, as it is said of what it happened to."""

    ACCEPT = "accepted"
    LEASE = "leased"
    START = "started"
    FINISH = "finished"
    FAIL = "failed"
    TIME_OUT = "timed out"
    SETTLE = "settled without a run"
    REFUSE = "found impossible to run"
    LOSE = "lost"
    BREAK = "broken"
    HAND_BACK = "handed back"
    CANCEL = "cancelled"
    RERUN = "asked for again"
    END = "ended"


class Do(StrEnum):
    """Instructions. ``QUEUE``: let it be leased again. ``STOP``: kill its run. ``END_RUN``: the run has the event too.

    ``CONCLUDE``: reach its verdict, and let those that waited for it go on.
    """

    START = "start its run"
    STOP = "stop its run"
    END_RUN = "end its run"
    QUEUE = "queue it"
    CONCLUDE = "conclude it"
    CANCEL_CELLS = "cancel its cells"
    TIDY = "tidy up"


@dataclass(frozen=True)
class Rule:
    """Where an event leads. ``last``: the rule in its place when no attempt is left."""

    after: State | SweepState
    do: tuple[Do, ...] = ()
    last: Rule | None = None

    @property
    def leads_to(self) -> frozenset[StrEnum]:
        return frozenset({self.after} | (self.last.leads_to if self.last else frozenset()))


ENDS = frozenset({State.FINISHED, State.FAILED, State.CRASHED, State.TIMED_OUT, State.CANCELLED})

_CAME_OUT = {Kind.FINISH: State.FINISHED, Kind.FAIL: State.FAILED, Kind.TIME_OUT: State.TIMED_OUT}
_HELD = (State.LEASED, State.RUNNING)
"""Somebody has a lease on it, and perhaps slots."""

Table = dict[tuple[Level, State | SweepState, Kind], Rule]


def _sweeps() -> Table:
    return {
        (Level.SWEEP, SweepState.ACTIVE, Kind.CANCEL): Rule(SweepState.ACTIVE, (Do.CANCEL_CELLS,)),
        (Level.SWEEP, SweepState.ACTIVE, Kind.RERUN): Rule(SweepState.ACTIVE),
        (Level.SWEEP, SweepState.ACTIVE, Kind.END): Rule(SweepState.ENDED, (Do.TIDY,)),
        (Level.SWEEP, SweepState.ENDED, Kind.RERUN): Rule(SweepState.ACTIVE),
    }


def _jobs() -> Table:
    job = Level.JOB
    crashed = Rule(State.CRASHED, (Do.END_RUN, Do.CONCLUDE))
    cancelled = Rule(State.CANCELLED, (Do.CONCLUDE,))
    table: Table = {
        (job, State.AUDITING, Kind.ACCEPT): Rule(State.QUEUED, (Do.QUEUE,)),
        (job, State.AUDITING, Kind.FAIL): Rule(State.FAILED, (Do.CONCLUDE,)),
        (job, State.AUDITING, Kind.REFUSE): Rule(State.CRASHED, (Do.CONCLUDE,)),
        (job, State.AUDITING, Kind.CANCEL): cancelled,
        (job, State.QUEUED, Kind.LEASE): Rule(State.LEASED, (Do.START,)),
        (job, State.QUEUED, Kind.SETTLE): Rule(State.FINISHED, (Do.CONCLUDE,)),
        (job, State.QUEUED, Kind.REFUSE): Rule(State.CRASHED, (Do.CONCLUDE,)),
        (job, State.QUEUED, Kind.CANCEL): cancelled,
        (job, State.LEASED, Kind.START): Rule(State.RUNNING),
    }
    for kind, end in _CAME_OUT.items():
        # A cell that waits may share the result of one that ran.
        table[job, State.QUEUED, kind] = Rule(end, (Do.CONCLUDE,))
        table[job, State.RUNNING, kind] = Rule(end, (Do.END_RUN, Do.CONCLUDE))
    for held in _HELD:
        table[job, held, Kind.LOSE] = Rule(State.QUEUED, (Do.END_RUN, Do.QUEUE), last=crashed)
        table[job, held, Kind.BREAK] = crashed
        table[job, held, Kind.HAND_BACK] = Rule(State.QUEUED, (Do.STOP, Do.END_RUN, Do.QUEUE))
        table[job, held, Kind.CANCEL] = Rule(State.CANCELLED, (Do.STOP, Do.END_RUN, Do.CONCLUDE))
    for end in ENDS:
        table[job, end, Kind.RERUN] = Rule(State.QUEUED, (Do.QUEUE,))
    return table


def _runs() -> Table:
    run = Level.RUN
    table: Table = {
        (run, State.QUEUED, Kind.LEASE): Rule(State.LEASED),
        (run, State.LEASED, Kind.START): Rule(State.RUNNING),
    }
    for kind, end in _CAME_OUT.items():
        table[run, State.RUNNING, kind] = Rule(end)
    for held in _HELD:
        table[run, held, Kind.LOSE] = table[run, held, Kind.BREAK] = Rule(State.CRASHED)
        table[run, held, Kind.HAND_BACK] = table[run, held, Kind.CANCEL] = Rule(State.CANCELLED)
    return table


RULES: Table = _sweeps() | _jobs() | _runs()
"""What is not in here cannot happen."""
