"""Lease what comes next in the queue, as long as there is room, and let each run be followed in a thread of its own."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from sqlalchemy.exc import DBAPIError

from service.dispatch.attempt import Attempt
from service.dispatch.going import Going
from service.dispatch.intake import Intake
from service.dispatch.leases import Lease, Leases
from service.dispatch.seats import Seats
from service.domain.lifecycle import InvalidTransition
from service.logs import about
from service.settings import Settings
from service.store import Store, repositories
from service.store.queue_records import JobRecord

logger = logging.getLogger(__name__)


class Starter:
    """``wake``: called when there may be something to lease again. ``leaving``: set when nothing is waited for."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        leases: Leases,
        queue: str,
        intake: Intake,
        leaving: threading.Event,
        wake: Callable[[], None],
    ) -> None:
        self.going = Going()
        self.seats = Seats()
        self._settings = settings
        self._store = store
        self._leases = leases
        self._queue = queue
        self._intake = intake
        self._leaving = leaving
        self._wake = wake

    def lease_next(self) -> bool:
        """Lease what comes next, as much as there is room for, and let it run; ``False`` when there is nothing."""
        room = self.going.room()
        found = self._ready(room) if room else []
        if not found:
            return False
        leased, refused = self._lease(found)
        for job, why in refused:
            # It must not hold up what comes after it.
            with self._store.transaction() as session:
                self._leases.refuse(session, job.id, why)
        for lease in leased:
            self._begin(lease)
        return True

    def _ready(self, room: int) -> list[JobRecord]:
        """Jobs that may be leased together: no sweep and no key has more of them than it may have."""
        by_sweep, by_key = self.going.by_sweep(), self.going.by_key()
        most = self._settings.max_parallel_per_key
        with self._store.reading() as session:
            limits = repositories.max_parallel(session, by_sweep)
            full = [sweep for sweep, limit in limits.items() if limit is not None and by_sweep[sweep] >= limit]
            full_keys = [key for key, runs in by_key.items() if most is not None and runs >= most]
            found = repositories.ready_jobs(session, self._queue, time.time(), room, full, full_keys)
            limits |= repositories.max_parallel(session, {job.sweep_id for job in found} - limits.keys())
        return list(within(found, limits, most, by_sweep, by_key))

    def _lease(self, jobs: Sequence[JobRecord]) -> tuple[list[Lease], list[tuple[JobRecord, str]]]:
        """Those that could be leased, in one transaction, and those that cannot be run, with the reason."""
        leased, refused = [], []
        with self._store.transaction() as session:
            for job in jobs:
                run_id = f"{job.sweep_id}-{job.cell_id}-{secrets.token_hex(3)}"
                try:
                    with session.begin_nested():
                        leased.append(self._leases.lease(session, job, run_id))
                except InvalidTransition:
                    # Cancelled a moment ago.
                    continue
                except DBAPIError:
                    raise
                except Exception as error:
                    logger.exception("job %s", job.id)
                    refused.append((job, f"its run could not be prepared: {type(error).__name__}: {error}"))
        return leased, refused

    def _begin(self, lease: Lease) -> None:
        attempt = Attempt(
            lease, self._settings, self._store, self._leases, self._intake, self.seats, self._leaving, self._placed
        )
        self.going.add(attempt)
        threading.Thread(target=self._carry_out, args=(attempt,), name=attempt.run_id, daemon=True).start()

    def _carry_out(self, attempt: Attempt) -> None:
        def free() -> None:
            self.going.freed(attempt)
            self._wake()

        job = attempt.lease.job
        try:
            with about(sweep=job.sweep_id, cell=job.cell_id, run=attempt.run_id):
                attempt.carry_out(free)
        finally:
            self.going.remove(attempt)
            self._wake()

    def _placed(self, run_id: str) -> None:
        self.going.placed(run_id)
        self._wake()


def within(
    jobs: Iterable[JobRecord],
    limits: Mapping[str, int | None],
    most_of_a_key: int | None,
    by_sweep: Counter[str],
    by_key: Counter[str],
) -> Iterator[JobRecord]:
    """Of ``jobs``, in their order, those that stay within the limits beside what runs already, which is counted on."""
    for job in jobs:
        limit = limits[job.sweep_id]
        full = limit is not None and by_sweep[job.sweep_id] >= limit
        key_full = job.key_id is not None and most_of_a_key is not None and by_key[job.key_id] >= most_of_a_key
        if full or key_full:
            continue
        by_sweep[job.sweep_id] += 1
        if job.key_id is not None:
            by_key[job.key_id] += 1
        yield job
