"""What a unit of work did, told to observers once it is committed: for metrics and logs.

    store.observe(print)
    with store.transaction() as session:
        repositories.conclude_cell(session, ...)   # notes a CellEnded
    # committed, and now printed

What is rolled back was never noted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from service.domain.lifecycle import State
from service.domain.verdict import Verdict
from service.store.records import NewEvent
from workers.protocol import Evidence

Observer = Callable[[object], None]

_NOTES = "shardproof_notes"


@dataclass(frozen=True)
class CellEnded:
    sweep_id: str
    cell_id: str
    name: str
    state: State
    verdict: Verdict
    ok: bool


@dataclass(frozen=True)
class RunEnded:
    """``failure`` says why there is no evidence, or not all of it."""

    sweep_id: str
    cell_id: str
    run_id: str
    state: State
    evidence: Evidence | None
    failure: str | None


@dataclass(frozen=True)
class EventsStored:
    events: Sequence[NewEvent]


def note(session: Session, what: object) -> None:
    """Tell the store's observers of ``what`` when this unit of work is committed."""
    session.info.setdefault(_NOTES, []).append(what)


def noted(session: Session) -> list[object]:
    """What this unit of work noted, in order."""
    return list(session.info.get(_NOTES, ()))
