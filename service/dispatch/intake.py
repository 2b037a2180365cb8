"""Events on their way to the store: in batches, in their order, none lost while the database is away.

What comes faster than it can be stored waits in a bounded queue; who brings more waits too, and with it, by Ray's
back-pressure, the actor that makes them.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Sequence

from service.dispatch.patience import Away, patiently
from service.store import Store, repositories
from service.store.records import NewEvent

logger = logging.getLogger(__name__)

MOST_WAITING = 2000
BATCH = 500

Item = NewEvent | threading.Event
"""An event, or what is set when all events before it are stored."""


class Intake:
    """Takes events from any thread; one thread of its own stores them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: queue.Queue[Item | None] = queue.Queue(MOST_WAITING)
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._thread.start()

    def put(self, event: NewEvent) -> None:
        """Take an event; waits while too many are on their way."""
        self._waiting.put(event)

    def flush(self) -> None:
        """Wait until every event that this thread brought is stored."""
        stored = threading.Event()
        self._waiting.put(stored)
        stored.wait()

    def close(self, patience_s: float) -> None:
        """Store what is on its way. A database that is away is waited for so many seconds."""
        self._waiting.put(None)
        self._thread.join(patience_s)
        self._given_up.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            batch = self._next()
            items = [item for item in batch if item is not None]
            try:
                self._write([item for item in items if isinstance(item, NewEvent)])
            except Away as error:
                logger.error("events are lost, for the database stayed away: %s", error)
            except Exception:
                self._write_singly([item for item in items if isinstance(item, NewEvent)])
            for item in items:
                if isinstance(item, threading.Event):
                    item.set()
            if len(items) < len(batch):
                return

    def _next(self) -> list[Item | None]:
        """What is there, at least one item. None ends it."""
        batch = [self._waiting.get()]
        while batch[-1] is not None and len(batch) < BATCH:
            try:
                batch.append(self._waiting.get_nowait())
            except queue.Empty:
                break
        return batch

    def _write(self, events: Sequence[NewEvent]) -> None:
        if events:
            patiently(lambda: self._store_all(events), self._given_up)

    def _write_singly(self, events: Sequence[NewEvent]) -> None:
        """One event that cannot be stored takes none of the others along."""
        for event in events:
            try:
                self._write([event])
            except Exception:
                logger.exception("an event of sweep %s that cannot be stored", event.sweep_id)

    def _store_all(self, events: Sequence[NewEvent]) -> None:
        with self._store.transaction() as session:
            repositories.add_events(session, events)
