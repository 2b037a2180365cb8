"""One thread that leases what is next in the queue and lets it run, as long as this controller leads.

The database is the only truth about who runs what: whatever has no lease there any more, because it was cancelled or
because another controller took over, is stopped here.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from service.dispatch.attempt import Attempt
from service.dispatch.courses import Courses, NoLongerMine
from service.dispatch.intake import Intake
from service.dispatch.leadership import Leadership
from service.domain.lifecycle import InvalidTransition
from service.settings import Settings
from service.store import Store, repositories
from service.store.queue_records import JobRecord
from service.store.trouble import StoreUnavailable

logger = logging.getLogger(__name__)

TICK_S = 1.0
"""How often it looks by itself. Whoever changes something wakes it."""

MOST_WAITING = 2
"""Runs that wait for slots in Ray, which gives them to whichever fits. The others wait in the queue, by priority."""

MOST_OVERTAKEN = 4
"""How often a run that needs many slots is overtaken by one that needs few. Then nothing more is leased before it."""

STOPPING_S = 10.0
"""How long runs that were stopped are waited for when the process leaves: they use Ray until then."""

MOST_AT_ONCE = 256
"""Runs that are followed at once, each by a thread."""


@dataclass
class _Going:
    """Runs that were begun here, by id. ``free``: of these, those that have given back their slots."""

    attempts: dict[str, Attempt] = field(default_factory=dict)
    free: set[str] = field(default_factory=set)

    def waiting(self) -> list[Attempt]:
        """Those without slots, the oldest first."""
        return [attempt for attempt in self.attempts.values() if not attempt.halt.placed]

    def placed(self, run_id: str) -> None:
        """A run has its slots: older ones that wait for theirs have been overtaken."""
        for attempt in self.attempts.values():
            if attempt.run_id == run_id:
                return
            if not attempt.halt.placed:
                attempt.overtaken += 1

    def by_sweep(self) -> Counter[str]:
        return Counter(attempt.lease.job.sweep_id for attempt in self._holding())

    def by_key(self) -> Counter[str]:
        return Counter(key for attempt in self._holding() if (key := attempt.lease.job.key_id) is not None)

    def _holding(self) -> list[Attempt]:
        return [attempt for run_id, attempt in self.attempts.items() if run_id not in self.free]


class Dispatcher:
    """``queue``: whose jobs it leases. ``cluster_ready``: says whether runs may start."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        courses: Courses,
        queue: str,
        leadership: Leadership,
        intake: Intake,
        cluster_ready: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._store = store
        self._courses = courses
        self._queue = queue
        self._leadership = leadership
        self._intake = intake
        self._cluster_ready = cluster_ready
        self._going = _Going()
        self._lock = threading.Lock()
        self._awake = threading.Event()
        self._leaving = threading.Event()
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
        while self._attempts() and time.monotonic() < deadline:
            self._awake.wait(TICK_S)
            self._awake.clear()
        for attempt in self._attempts():
            self._hand_back(attempt)

    def close(self) -> None:
        """End the thread. Runs that still go are stopped; their jobs are as the database has them."""
        self._leaving.set()
        self.wake()
        if self._thread.is_alive():
            self._thread.join()
        for attempt in self._attempts():
            attempt.halt.stop()
        deadline = time.monotonic() + STOPPING_S
        while self._attempts() and time.monotonic() < deadline:
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
            return
        self._led = True
        attempts = self._attempts()
        with self._store.reading() as session:
            held = repositories.held_runs(session, self._queue)
        self._stop_all_but(set(held), attempts)
        mine = {attempt.run_id for attempt in attempts}
        self._reclaim({run_id: job_id for run_id, job_id in held.items() if run_id not in mine})
        if not self._cluster_ready():
            self._lose_all("the Ray cluster is gone")
        else:
            while not self._draining and self._has_room() and self._lease_next():
                continue

    def _reclaim(self, held: dict[str, str]) -> None:
        """Queue again what is leased and not run here: whoever leads is the only one that may run anything."""
        for run_id, job_id in held.items():
            with contextlib.suppress(NoLongerMine), self._store.transaction() as session:
                self._courses.reclaim(session, job_id, run_id)

    def _stop_all_but(self, held: set[str], attempts: list[Attempt] | None = None) -> None:
        for attempt in self._attempts() if attempts is None else attempts:
            if attempt.run_id not in held and not attempt.halt.asked:
                attempt.halt.stop()

    def _lose_all(self, why: str) -> None:
        """Nobody else will say what became of the runs."""
        for attempt in self._attempts():
            if not attempt.halt.asked:
                with contextlib.suppress(NoLongerMine), self._store.transaction() as session:
                    self._courses.lose(session, attempt.lease, why)
                attempt.halt.stop()

    # --- leasing -----------------------------------------------------------------------------------------------------

    def _has_room(self) -> bool:
        with self._lock:
            waiting = self._going.waiting()
            patient = all(attempt.overtaken < MOST_OVERTAKEN for attempt in waiting)
            return patient and len(waiting) < MOST_WAITING and len(self._going.attempts) < MOST_AT_ONCE

    def _lease_next(self) -> bool:
        """Lease one job and let it run; ``False`` when there is none."""
        job = self._next()
        if job is None:
            return False
        run_id = f"{job.sweep_id}-{job.cell_id}-{secrets.token_hex(3)}"
        try:
            with self._store.transaction() as session:
                lease = self._courses.lease(session, job, run_id)
        except InvalidTransition:
            # Cancelled a moment ago.
            return True
        except StoreUnavailable:
            raise
        except Exception as error:
            logger.exception("job %s", job.id)
            self._refuse(job, f"its run could not be prepared: {type(error).__name__}: {error}")
            return True
        attempt = Attempt(lease, self._settings, self._store, self._courses, self._intake, self._leaving, self._placed)
        with self._lock:
            self._going.attempts[attempt.run_id] = attempt
        threading.Thread(target=self._carry_out, args=(attempt,), name=attempt.run_id, daemon=True).start()
        return True

    def _refuse(self, job: JobRecord, why: str) -> None:
        """It must not hold up what comes after it."""
        with self._store.transaction() as session:
            self._courses.refuse(session, job.id, why)

    def _placed(self, run_id: str) -> None:
        with self._lock:
            self._going.placed(run_id)
        self.wake()

    def _next(self) -> JobRecord | None:
        with self._lock:
            by_sweep, by_key = self._going.by_sweep(), self._going.by_key()
        most = self._settings.max_parallel_per_key
        full_keys = [key for key, runs in by_key.items() if most is not None and runs >= most]
        with self._store.reading() as session:
            limits = {sweep: repositories.get_queue(session, sweep).max_parallel for sweep in by_sweep}
            full = [sweep for sweep, limit in limits.items() if limit is not None and by_sweep[sweep] >= limit]
            found = repositories.ready_jobs(session, self._queue, time.time(), 1, full, full_keys)
        return found[0] if found else None

    def _carry_out(self, attempt: Attempt) -> None:
        def free() -> None:
            with self._lock:
                self._going.free.add(attempt.run_id)
            attempt.halt.placed = True
            self.wake()

        try:
            attempt.carry_out(free)
        finally:
            with self._lock:
                self._going.attempts.pop(attempt.run_id, None)
                self._going.free.discard(attempt.run_id)
            self.wake()

    def _hand_back(self, attempt: Attempt) -> None:
        try:
            with self._store.transaction() as session:
                self._courses.hand_back(session, attempt.lease, "the controller is shut down")
        except Exception as error:
            # Whoever leads next finds the lease of a controller that is gone.
            logger.info("run %s is not handed back: %s", attempt.run_id, error)
        attempt.halt.stop()

    def _attempts(self) -> list[Attempt]:
        with self._lock:
            return list(self._going.attempts.values())
