"""One thread that leases what is next in the queue and lets it run, as long as this controller leads.

The database is the only truth about who runs what: whatever has no lease there any more, because it was cancelled or
because another controller took over, is stopped here.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable

from service.dispatch.attempt import Attempt
from service.dispatch.intake import Intake
from service.dispatch.leadership import Leadership
from service.dispatch.leases import Leases, NoLongerMine
from service.dispatch.seats import UNUSED_S
from service.dispatch.starter import Starter
from service.settings import Settings
from service.store import Store, repositories
from service.store.trouble import StoreUnavailable

logger = logging.getLogger(__name__)

TICK_S = 1.0
"""How often it looks by itself. Whoever changes something wakes it."""

STOPPING_S = 10.0
"""How long runs that were stopped are waited for when the process leaves: they use Ray until then."""


class Dispatcher:
    """``queue``: whose jobs it leases. ``cluster_ready``: says whether runs may start."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        leases: Leases,
        queue: str,
        leadership: Leadership,
        intake: Intake,
        cluster_ready: Callable[[], bool],
    ) -> None:
        self._store = store
        self._leases = leases
        self._queue = queue
        self._leadership = leadership
        self._cluster_ready = cluster_ready
        self._awake = threading.Event()
        self._leaving = threading.Event()
        self._starter = Starter(settings, store, leases, queue, intake, self._leaving, self.wake)
        self._going, self._seats = self._starter.going, self._starter.seats
        self._draining = False
        self._led = False
        self._away = False
        self._thread = threading.Thread(target=self._run, name="dispatcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """There may be something to do."""
        self._awake.set()

    @property
    def leads(self) -> bool:
        return self._led

    def drain(self, patience_s: float) -> None:
        """Begin nothing more; wait for what runs, so many seconds; hand the rest back to the queue."""
        self._draining = True
        deadline = time.monotonic() + patience_s
        while self._going.all() and time.monotonic() < deadline:
            self._awake.wait(TICK_S)
            self._awake.clear()
        for attempt in self._going.all():
            self._hand_back(attempt)

    def close(self) -> None:
        """End the thread. Runs that still go are stopped; their jobs are as the database has them."""
        self._leaving.set()
        self.wake()
        if self._thread.is_alive():
            self._thread.join()
        self._seats.close()
        for attempt in self._going.all():
            attempt.halt.stop()
        deadline = time.monotonic() + STOPPING_S
        while self._going.all() and time.monotonic() < deadline:
            self._awake.wait(TICK_S)
            self._awake.clear()
        self._leadership.resign()

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._leaving.is_set():
            try:
                self._look()
                self._away = False
            except StoreUnavailable as error:
                if not self._away:
                    logger.warning("nothing is leased until the database is back: %s", error)
                self._away = True
            except Exception:
                logger.exception("dispatcher")
            self._awake.wait(TICK_S)
            self._awake.clear()

    def _look(self) -> None:
        leads = self._leadership.held()
        if not leads:
            if self._led:
                logger.warning("another controller leads now; runs that were begun here are stopped")
            self._led = False
            self._stop_all_but(set())
            self._seats.give_up_unused()
            return
        self._led = True
        attempts = self._going.all()
        with self._store.reading() as session:
            held = repositories.held_runs(session, self._queue)
        self._stop_all_but(set(held), attempts)
        mine = {attempt.run_id for attempt in attempts}
        self._reclaim({run_id: job_id for run_id, job_id in held.items() if run_id not in mine})
        if not self._cluster_ready():
            self._lose_all("the Ray cluster is gone")
            self._seats.give_up_unused()
        else:
            self._seats.give_up_unused(UNUSED_S)
            while not self._draining and self._starter.lease_next():
                continue

    def _reclaim(self, held: dict[str, str]) -> None:
        """Queue again what is leased and not run here: whoever leads is the only one that may run anything."""
        for run_id, job_id in held.items():
            with contextlib.suppress(NoLongerMine), self._store.transaction() as session:
                self._leases.reclaim(session, job_id, run_id)

    def _stop_all_but(self, held: set[str], attempts: list[Attempt] | None = None) -> None:
        for attempt in self._going.all() if attempts is None else attempts:
            if attempt.run_id not in held and not attempt.halt.asked:
                attempt.halt.stop()

    def _lose_all(self, why: str) -> None:
        """Nobody else will say what became of the runs."""
        for attempt in self._going.all():
            if not attempt.halt.asked:
                with contextlib.suppress(NoLongerMine), self._store.transaction() as session:
                    self._leases.lose(session, attempt.lease, why)
                attempt.halt.stop()

    def _hand_back(self, attempt: Attempt) -> None:
        try:
            with self._store.transaction() as session:
                self._leases.hand_back(session, attempt.lease, "the controller is shut down")
        except Exception as error:
            # Whoever leads next finds the lease of a controller that is gone.
            logger.info("run %s is not handed back: %s", attempt.run_id, error)
        attempt.halt.stop()
