"""Which of several controllers on one database dispatches: the one whose row in the table of leaders goes on beating.

No clock of another machine is trusted. Who waits sees by its own clock how long the row stayed as it is; who leads
steps down, by its own clock, well before the others may take it for dead.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Protocol

from sqlalchemy.exc import SQLAlchemyError

from service.dispatch import identity
from service.store import Store, repositories
from service.store.queue_records import SHARED, LeaderRecord
from service.store.trouble import StoreUnavailable

LEASE_S = 15.0
"""So long the row has to stay as it is before another takes over."""
TRUST_S = 10.0
"""So long a leader goes on that cannot say so."""
BEAT_S = 3.0


class Leadership(Protocol):
    """Says whether to dispatch."""

    def held(self) -> bool:
        """May this process dispatch now? Asked often, by one thread."""
        ...

    def resign(self) -> None:
        """Let others lead at once."""
        ...


class Alone:
    """The leader of a queue that nobody else knows."""

    def held(self) -> bool:
        return True

    def resign(self) -> None:
        return None


class Elected:
    """The leader among those that serve one database, if it is this process. ``clock``: seconds, never back."""

    def __init__(
        self, store: Store, owner: str, name: str = SHARED, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._owner = owner
        self._name = name
        self._clock = clock
        self._mine: LeaderRecord | None = None
        self._beaten = 0.0
        self._seen: tuple[LeaderRecord | None, float] = (None, 0.0)
        self._lock = threading.Lock()

    def held(self) -> bool:
        """Lead, go on leading, or see whether the leader is still there. A database that is away decides nothing."""
        with self._lock:
            now = self._clock()
            try:
                if self._mine is None:
                    self._try_to_lead(now)
                elif now - self._beaten >= BEAT_S:
                    self._go_on(now)
            except StoreUnavailable:
                self._seen = (None, 0.0)
            if self._mine is not None and now - self._beaten > TRUST_S:
                self._mine = None
            return self._mine is not None

    def resign(self) -> None:
        with self._lock:
            if self._mine is not None:
                self._mine = None
                # Where the database is away the lease runs out by itself.
                with contextlib.suppress(SQLAlchemyError, StoreUnavailable), self._store.transaction() as session:
                    repositories.resign(session, self._name, self._owner)

    def _go_on(self, now: float) -> None:
        self._mine = self._lead(self._mine)
        self._beaten = now

    def _try_to_lead(self, now: float) -> None:
        with self._store.reading() as session:
            leader = repositories.get_leader(session, self._name)
        if leader is not None and not self._gone(leader, now):
            return
        self._mine = self._lead(leader)
        self._beaten = now

    def _lead(self, seen: LeaderRecord | None) -> LeaderRecord | None:
        with self._store.transaction() as session:
            # Returned only when it is committed.
            return repositories.lead(session, self._name, self._owner, seen)

    def _gone(self, leader: LeaderRecord, now: float) -> bool:
        seen, since = self._seen
        if seen != leader:
            self._seen = (leader, now)
            since = now
        return leader.owner == self._owner or not identity.alive(leader.owner) or now - since >= LEASE_S
