"""How long an arm, a phase of one of its processes, and its silence may last."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from workers.watchdog.phases import Phases, Rank


class Limit(StrEnum):
    ARM = "arm"
    PHASE = "phase"
    SILENCE = "silence"


@dataclass(frozen=True)
class Expiry:
    """A limit of ``seconds`` that is reached at ``at``. ``rank``: whose phase it is."""

    limit: Limit
    seconds: float
    at: float
    rank: Rank = None


@dataclass(frozen=True)
class Limits:
    """Seconds. ``None``: there is no such limit."""

    arm: float
    phase: float | None = None
    silence: float | None = None

    def next(self, begin: float, phases: Phases) -> Expiry:
        """The limit that is reached first if nothing more is heard. ``begin``: when the arm was started."""
        found = [Expiry(Limit.ARM, self.arm, begin + self.arm)]
        if self.phase is not None:
            standing = phases.standing().items()
            found += [Expiry(Limit.PHASE, self.phase, since + self.phase, rank) for rank, since in standing]
        if self.silence is not None:
            heard = begin if phases.heard is None else max(phases.heard, begin)
            found.append(Expiry(Limit.SILENCE, self.silence, heard + self.silence))
        return min(found, key=lambda expiry: expiry.at)
