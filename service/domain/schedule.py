"""What a schedule asks for at a moment: fire, note what was missed, or wait."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from service.domain.cron import Cron

LATE = timedelta(minutes=5)
"""A time that nobody served for so long was missed: the controller was not there. A restart is shorter."""


class Missed(StrEnum):
    """What is done about times that were missed: nothing, or one sweep for all of them."""

    SKIP = "skip"
    ONCE = "once"


class Cause(StrEnum):
    """Why a sweep is submitted: its time has come, was missed, or somebody asked."""

    DUE = "due"
    MISSED = "missed"
    ASKED = "asked"


@dataclass(frozen=True)
class Turn:
    """``time``: the latest that had come; ``None`` if none had. ``cause``: why to fire for it; ``None``: it is skipped.

    ``next``: the time after that, ``None`` if there is none.
    """

    time: datetime | None
    cause: Cause | None
    next: datetime | None


def turn(cron: Cron, served: datetime, now: datetime, missed: Missed) -> Turn:
    """What to do at ``now``, when all times up to ``served`` are done with."""
    time = cron.latest(served, now)
    following = next(cron.after(max(served, time or served)), None)
    if time is None:
        return Turn(None, None, following)
    if now - time <= LATE:
        return Turn(time, Cause.DUE, following)
    return Turn(time, Cause.MISSED if missed is Missed.ONCE else None, following)
