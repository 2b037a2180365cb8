"""What a controller does by itself: be connected to Ray, lease what is in its queue, take in events."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from sqlalchemy.orm import Session

from service.dispatch.cluster import Connection
from service.dispatch.courses import Courses
from service.dispatch.dispatcher import Dispatcher
from service.dispatch.endings import Endings
from service.dispatch.intake import Intake
from service.dispatch.leadership import Leadership
from service.dispatch.leases import Leases
from service.dispatch.patience import patiently_stored
from service.settings import Settings
from service.store import Store

Value = TypeVar("Value")

EVENTS_PATIENCE_S = 10.0
"""How long a database that is away is waited for when the controller leaves."""


class Driver:
    """``connection``: that to Ray, which others keep."""

    def __init__(self, settings: Settings, store: Store, courses: Courses, endings: Endings) -> None:
        self.connection = Connection()
        self._settings = settings
        self._store = store
        self._courses = courses
        self._endings = endings
        self._leaving = threading.Event()
        self._dispatcher: Dispatcher | None = None

    @contextlib.contextmanager
    def dispatching(self, queue: str, owner: str, leadership: Leadership) -> Iterator[None]:
        """Lease and run what is in ``queue``, inside the block."""
        intake = Intake(self._store)
        leases = Leases(self._settings, owner, self._courses)
        self._dispatcher = Dispatcher(self._settings, self._store, leases, queue, leadership, intake, self.connection)
        self._dispatcher.start()
        self.connection.when_changed(self.connected)
        try:
            yield
        finally:
            self._leaving.set()
            self._dispatcher.close()
            intake.close(EVENTS_PATIENCE_S)
            self._endings.close()

    def drain(self) -> None:
        if self._dispatcher is not None:
            self._dispatcher.drain(self._settings.drain_s)

    @property
    def leads(self) -> bool:
        return self._dispatcher is not None and self._dispatcher.leads

    def change(self, work: Callable[[Session], Value]) -> Value:
        """A change that somebody asks for, and that the dispatcher is to see at once."""
        found = patiently_stored(self._store, work, self._leaving)
        self.wake()
        return found

    def wake(self) -> None:
        """There may be something to do."""
        if self._dispatcher is not None:
            self._dispatcher.wake()

    def connected(self) -> None:
        """A command that runs alone has nobody who would go on when there is no cluster."""
        error = self.connection.error
        if error is not None and self.connection.hopeless:
            why = f"the sweep could not go on: {type(error).__name__}: {error}"
            for sweep_id in self._endings.expected:
                self.change(lambda session, sweep_id=sweep_id: self._courses.give_up(session, sweep_id, why))  # type: ignore[misc]
        self.wake()
