"""Submits the sweeps of schedules when their time has come. Any number of controllers may do so on one database.

A pass claims what is due, one short transaction each, and hands it to threads, since a submission takes as long as its
audit does. Meanwhile each pass renews the leases of what is being submitted. A claim whose controller died is taken
over, and submitted again unless its sweep is stored: a claim gives its sweep the id.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Protocol

from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from service.dispatch import identity
from service.domain.document import Document, from_tree
from service.logs import about
from service.store import Store, StoreError, repositories
from service.store.schedule_records import Claim, Fire

logger = logging.getLogger(__name__)

LEASE = timedelta(minutes=2)
PASS_EVERY_S = 20.0
"""So late is a time noticed that somebody wrote meanwhile; what is known beforehand is waited for exactly."""

OVERDUE_S = 1.0
"""So long is waited for another controller that has just locked what is due."""

AT_ONCE = 100
"""Claims of one pass."""

SUBMISSIONS = 2
"""Audits that schedules may cause at the same time."""

MOST_ATTEMPTS = 3
"""A submission with which so many controllers died is not tried again."""

Clock = Callable[[], datetime]


class Submit(Protocol):
    """The controller's: a sweep of this id can be stored once."""

    def __call__(self, document: Document, *, sweep_id: str, key_id: str | None) -> str: ...


def wall_clock() -> datetime:
    return datetime.now(UTC)


def sweep_of(fire: Fire) -> str:
    """The id that the sweep of a claim is given. It sorts by time as others do."""
    return f"{fire.claimed_at:%Y%m%d-%H%M%S}-{fire.id % 16**6:06x}"


class Scheduler:
    """``submit``: the controller's. ``owner``: who claims, told apart from every other controller on this database."""

    def __init__(self, store: Store, submit: Submit, owner: str = "", clock: Clock = wall_clock) -> None:
        self._store = store
        self._submit = submit
        self._owner = owner or identity.me()
        self._clock = clock
        self._submitting: set[int] = set()

    def run_pass(self, executor: Executor) -> list[Future[None]]:
        """Claim all that is due now, and begin to submit it; those submissions."""
        now = self._clock()
        if self._submitting:
            with self._store.transaction() as session:
                repositories.renew_fires(session, list(self._submitting), self._claim(now))
        with self._store.reading() as session:
            due = repositories.due_schedules(session, now, AT_ONCE)
            abandoned = repositories.abandoned_fires(session, now)
        claimed = [self._claim_due(name, now) for name in due] + [self._take_over(fire, now) for fire in abandoned]
        return [self._begin(fire, executor) for fire in claimed if fire is not None]

    def fire(self, name: str) -> Fire:
        """Submit the sweep of a schedule now, because somebody asks; what became of that."""
        now = self._clock()
        with self._store.transaction() as session:
            fire = repositories.claim_asked(session, name, now, self._claim(now))
        self._submitting.add(fire.id)
        self._serve(fire)
        with self._store.reading() as session:
            return repositories.get_fire(session, fire.id)

    def wait_s(self) -> float:
        """Seconds until the next pass is worth it."""
        with self._store.reading() as session:
            time = repositories.next_time(session)
        if time is None:
            return PASS_EVERY_S
        remaining_s = (time - self._clock()).total_seconds()
        return min(PASS_EVERY_S, remaining_s if remaining_s > 0 else OVERDUE_S)

    def _claim(self, now: datetime) -> Claim:
        return Claim(self._owner, now + LEASE)

    def _claim_due(self, name: str, now: datetime) -> Fire | None:
        try:
            with self._store.transaction() as session:
                return repositories.claim_due(session, name, now, self._claim(now))
        except IntegrityError:
            logger.info("another controller serves this time of schedule %s", name)
            return None

    def _take_over(self, fire_id: int, now: datetime) -> Fire | None:
        with self._store.transaction() as session:
            return repositories.take_over(session, fire_id, now, self._claim(now))

    def _begin(self, fire: Fire, executor: Executor) -> Future[None]:
        self._submitting.add(fire.id)
        return executor.submit(self._serve_unwatched, fire)

    def _serve_unwatched(self, fire: Fire) -> None:
        try:
            self._serve(fire)
        except Exception:
            # Nothing could be recorded. The lease runs out, and it is tried again.
            logger.exception("schedule %s", fire.schedule)

    def _serve(self, fire: Fire) -> None:
        try:
            with about(schedule=fire.schedule):
                sweep_id, detail = self._sweep_of(fire)
            with self._store.transaction() as session:
                repositories.conclude_fire(session, fire.id, self._owner, self._clock(), sweep_id, detail)
        finally:
            self._submitting.discard(fire.id)

    def _sweep_of(self, fire: Fire) -> tuple[str | None, str | None]:
        """The id of its sweep, or why there is none."""
        with self._store.reading() as session:
            schedule = repositories.get_schedule(session, fire.schedule)
            stored = repositories.has_sweep(session, sweep_of(fire))
        if stored:
            return sweep_of(fire), None
        if fire.attempts > MOST_ATTEMPTS:
            return None, f"{MOST_ATTEMPTS} controllers ended while they submitted it; see their logs"
        try:
            return self._submit(from_tree(schedule.matrix), sweep_id=sweep_of(fire), key_id=schedule.key_id), None
        except (SQLAlchemyError, StoreError):
            raise
        except Exception as error:
            # Whatever is wrong with one schedule is that one's finding.
            logger.exception("schedule %s", fire.schedule)
            return None, f"{type(error).__name__}: {error}"


@contextlib.contextmanager
def scheduling(scheduler: Scheduler) -> Iterator[None]:
    """Schedules fire inside the block. Submissions that have begun are waited for at its end."""
    stop = threading.Event()
    with ThreadPoolExecutor(SUBMISSIONS, thread_name_prefix="schedule") as executor:
        thread = threading.Thread(target=_keep_on, args=(scheduler, executor, stop), name="scheduler", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            # Those that wait stay claimed, and the next controller has them.
            executor.shutdown(cancel_futures=True)


def _keep_on(scheduler: Scheduler, executor: Executor, stop: threading.Event) -> None:
    wait_s = 0.0
    while not stop.wait(wait_s):
        try:
            scheduler.run_pass(executor)
            wait_s = scheduler.wait_s()
        except Exception:
            # The database may be away for a while; schedules wait for it.
            logger.exception("schedules")
            wait_s = PASS_EVERY_S
