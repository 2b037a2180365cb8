"""The runs that this controller follows at present, and what of its slots and limits they take up."""

from __future__ import annotations

import threading
from collections import Counter

from service.dispatch.attempt import Attempt

MOST_WAITING = 2
"""Runs that wait for slots in Ray, which gives them to whichever fits. The others wait in the queue, by priority."""

MOST_OVERTAKEN = 4
"""How often a run that needs many slots is overtaken by one that needs few. Then nothing more is leased before it."""

MOST_AT_ONCE = 256
"""Runs that are followed at once, each by a thread."""


class Going:
    """Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._attempts: dict[str, Attempt] = {}
        self._free: set[str] = set()

    def all(self) -> list[Attempt]:
        with self._lock:
            return list(self._attempts.values())

    def add(self, attempt: Attempt) -> None:
        with self._lock:
            self._attempts[attempt.run_id] = attempt

    def placed(self, run_id: str) -> None:
        """A run has its slots: older ones that wait for theirs have been overtaken."""
        with self._lock:
            for attempt in self._attempts.values():
                if attempt.run_id == run_id:
                    return
                if not attempt.halt.placed:
                    attempt.overtaken += 1

    def freed(self, attempt: Attempt) -> None:
        """It has given back its slots, and its end is still to be stored."""
        with self._lock:
            self._free.add(attempt.run_id)
            attempt.halt.placed = True

    def remove(self, attempt: Attempt) -> None:
        with self._lock:
            self._attempts.pop(attempt.run_id, None)
            self._free.discard(attempt.run_id)

    def room(self) -> int:
        """How many more runs may be begun now."""
        with self._lock:
            waiting = [attempt for attempt in self._attempts.values() if not attempt.halt.placed]
            if any(attempt.overtaken >= MOST_OVERTAKEN for attempt in waiting):
                return 0
            return max(min(MOST_WAITING - len(waiting), MOST_AT_ONCE - len(self._attempts)), 0)

    def by_sweep(self) -> Counter[str]:
        """Runs with slots, or waiting for some, of each sweep."""
        return Counter(attempt.lease.job.sweep_id for attempt in self._holding())

    def by_key(self) -> Counter[str]:
        """The same of each API key."""
        return Counter(key for attempt in self._holding() if (key := attempt.lease.job.key_id) is not None)

    def _holding(self) -> list[Attempt]:
        with self._lock:
            return [attempt for run_id, attempt in self._attempts.items() if run_id not in self._free]
