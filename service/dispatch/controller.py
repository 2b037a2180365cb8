"""The controller: accepts matrices, stores their sweeps and has them run. ``run`` and ``serve`` use the same one."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import TypeVar

from sqlalchemy.orm import Session

from service.dispatch import identity, questions, requests, retention
from service.dispatch.accept import Terms, accept, describe_environments
from service.dispatch.cluster import Connection
from service.dispatch.courses import Courses
from service.dispatch.dispatcher import Dispatcher
from service.dispatch.intake import Intake
from service.dispatch.leadership import Alone, Elected
from service.dispatch.patience import patiently
from service.dispatch.placement import refuse_what_never_fits
from service.dispatch.plan import plan
from service.dispatch.preview import preview
from service.domain.document import Document, from_tree
from service.domain.preview import Preview
from service.settings import Settings
from service.store import Store, repositories
from service.store.queue_records import SHARED
from service.store.records import SweepState
from service.sweep_ids import new_sweep_id
from workers.zygote.client import Zygote, can_offer

logger = logging.getLogger(__name__)

Value = TypeVar("Value")

EVENTS_PATIENCE_S = 10.0
"""How long a database that is away is waited for when the controller leaves."""


class Controller:
    """Use inside :func:`running`, which connects to Ray and dispatches. Its methods may be called from any thread.

    ``alone``: its sweeps are its own, no other controller goes on with them, and it takes none of others.
    ``owner``: by what it is known in the database.
    """

    def __init__(self, settings: Settings, store: Store, *, alone: bool = False, owner: str | None = None) -> None:
        self._settings = settings
        self._store = store
        self._owner = owner or identity.me()
        self._queue = self._owner if alone else SHARED
        self._connection = Connection()
        self._leaving = threading.Event()
        self._ended: dict[str, threading.Event] = {}
        self._tidying = ThreadPoolExecutor(1, thread_name_prefix="tidy")
        self._courses = Courses(settings, self._owner, self._has_ended)
        self._leadership = Alone() if alone else Elected(store, self._owner)
        self._dispatcher: Dispatcher | None = None
        self._intake: Intake | None = None

    # --- what is asked of it -----------------------------------------------------------------------------------------

    def submit(
        self,
        document: Document,
        only: str | None = None,
        *,
        priority: int = 0,
        max_parallel: int | None = None,
        key_id: str | None = None,
        sweep_id: str | None = None,
    ) -> str:
        """Store the sweep of a matrix (or of its cell ``only``), let it start, and return its id.

        Args:
            priority: sweeps of a higher one come first, then older ones.
            max_parallel: so many runs of it at once, at most.
            key_id: the API key that it is submitted with.
            sweep_id: the id it is to have, where somebody chose it before.

        Raises:
            MatrixError: with every problem of the matrix, before anything is stored.
            EngineEnvironmentError: when the engine environment does not answer.
        """
        planned = plan(document, self._settings, only)
        if self._settings.cluster_address is not None:
            refuse_what_never_fits(document, planned, self._connection, self._settings)
        sweep_id = sweep_id or new_sweep_id()
        terms = Terms(self._queue, priority, max_parallel, key_id)
        with self._store.transaction() as session:
            accept(session, sweep_id, self._owner, planned, terms, self._settings)
        self._ended.setdefault(sweep_id, threading.Event())
        retention.claim(self._settings.artifacts_dir / sweep_id)
        describe_environments(planned, sweep_id, self._settings)
        self._look_whether_ended(sweep_id)
        self._wake()
        return sweep_id

    def preview(self, document: Document) -> Preview:
        """What ``submit`` would make of a matrix; nothing is stored or started.

        Raises:
            MatrixError, EngineEnvironmentError: as ``submit``.
        """
        return preview(plan(document, self._settings))

    def cancel(self, sweep_id: str, cell_id: str | None = None) -> None:
        """Cancel what has not ended of a sweep, or one cell. Its slots are free within seconds.

        Raises:
            UnknownRecord: there is no such sweep or cell.
            InvalidTransition: it has ended.
        """
        self._change(lambda session: requests.cancel(session, self._courses, sweep_id, cell_id))

    def rerun(self, sweep_id: str, cells: Sequence[str] | None = None) -> None:
        """Run cells of a sweep again, by their ids; without any, those that did not come out as expected.

        Raises:
            UnknownRecord: there is no such sweep or cell.
            InvalidTransition: one of them has not ended, or there is none to run again.
        """
        self._change(lambda session: requests.rerun(session, self._courses, self._queue, sweep_id, cells))

    def clone(self, sweep_id: str) -> str:
        """Submit the matrix of a sweep anew, on the same terms, and return the new sweep's id.

        Raises:
            UnknownRecord: there is no such sweep.
            MatrixError: as ``submit``: what the matrix may say may have changed since.
        """
        with self._store.reading() as session:
            sweep = repositories.get_sweep(session, sweep_id)
            terms = repositories.get_queue(session, sweep_id)
        return self.submit(
            from_tree(sweep.matrix), priority=terms.priority, max_parallel=terms.max_parallel, key_id=terms.key_id
        )

    def drain(self) -> None:
        """Begin no more runs, give those that go some time, and hand the rest back to the queue."""
        if self._dispatcher is not None:
            self._dispatcher.drain(self._settings.drain_s)

    @property
    def leads(self) -> bool:
        """Does this controller dispatch, or another one on the same database?"""
        return self._dispatcher is not None and self._dispatcher.leads

    def trouble(self) -> str | None:
        """Why no sweep can start at present; ``None`` when it can."""
        if self._connection():
            return None
        error = self._connection.error
        if error is None:
            return "Ray is not there yet; sweeps that are submitted wait for it"
        return f"Ray cannot be used: {error}"

    def wait(self) -> None:
        """Until every sweep that was submitted here has ended."""
        for ended in list(self._ended.values()):
            ended.wait()

    # --- how it goes on ----------------------------------------------------------------------------------------------

    def recover(self) -> list[str]:
        """Conclude what commands that ran alone, and are no longer there, left unfinished; the ids of their sweeps.

        Their engines ended with them. What they left on disk and serves nobody is taken away. What was submitted to a
        served controller is not concluded: whoever leads goes on with it.
        """
        why = "the controller that drove this sweep ended before this cell did; run the matrix again"
        with self._store.transaction() as session:
            sweeps = repositories.abandoned_sweeps(session, identity.alive)
            for sweep_id in sweeps:
                self._courses.give_up(session, sweep_id, why)
        self._tidy(sweeps)
        return sweeps

    @contextlib.contextmanager
    def dispatching(self) -> Iterator[None]:
        """Lease and run what is in the queue, inside the block."""
        self._intake = Intake(self._store)
        self._dispatcher = Dispatcher(
            self._settings,
            self._store,
            self._courses,
            self._queue,
            self._leadership,
            self._intake,
            self._connection,
        )
        self._dispatcher.start()
        self._connection.when_changed(self._connected)
        try:
            yield
        finally:
            self._leaving.set()
            self._dispatcher.close()
            self._intake.close(EVENTS_PATIENCE_S)
            self._tidying.shutdown()

    @property
    def connection(self) -> Connection:
        return self._connection

    def _connected(self) -> None:
        """A command that runs alone has nobody who would go on when there is no cluster."""
        error = self._connection.error
        if error is not None and self._connection.hopeless:
            why = f"the sweep could not go on: {type(error).__name__}: {error}"
            for sweep_id in list(self._ended):
                self._change(lambda session, sweep_id=sweep_id: self._courses.give_up(session, sweep_id, why))  # type: ignore[misc]
        self._wake()

    def _change(self, work: Callable[[Session], Value]) -> Value:
        def unit() -> Value:
            with self._store.transaction() as session:
                return work(session)

        found = patiently(unit, self._leaving)
        self._wake()
        return found

    def _wake(self) -> None:
        if self._dispatcher is not None:
            self._dispatcher.wake()

    # --- what ended --------------------------------------------------------------------------------------------------

    def _look_whether_ended(self, sweep_id: str) -> None:
        """A sweep of which nothing is run ends as it is stored; one without a cluster never begins."""
        with self._store.reading() as session:
            ended = repositories.get_sweep(session, sweep_id).state is SweepState.ENDED
        if ended:
            self._has_ended(sweep_id)
        elif self._connection.hopeless:
            self._connected()

    def _has_ended(self, sweep_id: str) -> None:
        self._tidying.submit(self._tidy_ended, sweep_id)

    def _tidy_ended(self, sweep_id: str) -> None:
        self._tidy([sweep_id])
        self._ended.setdefault(sweep_id, threading.Event()).set()

    def _tidy(self, ended: list[str]) -> None:
        """Take away what serves nobody any more. What cannot be taken away costs disk and no sweep."""
        try:
            for sweep_id in ended:
                retention.forget_caches(self._settings.artifacts_dir / sweep_id)
            retention.tidy(self._settings, self._store)
        except Exception:
            logger.exception("old artifacts in %s", self._settings.artifacts_dir)


@contextlib.contextmanager
def running(settings: Settings, store: Store, *, alone: bool = False) -> Iterator[Controller]:
    """A controller that is connected to Ray, after it has put in order what dead ones left.

    Ray starts in the background: a matrix can be audited, and refused, meanwhile. ``alone``: see ``Controller``.
    """
    controller = Controller(settings, store, alone=alone)
    controller.recover()
    leave = threading.Event()
    connecting = threading.Thread(
        target=controller.connection.keep, args=(settings, leave, alone), name="ray", daemon=True
    )
    connecting.start()
    zygotes = _zygotes(settings)
    try:
        with controller.dispatching():
            yield controller
    finally:
        leave.set()
        connecting.join()
        for zygote in zygotes:
            zygote.close()


@contextlib.contextmanager
def serving(settings: Settings, store: Store) -> Iterator[Controller]:
    """As :func:`running`, for a process that is told to end by SIGTERM: what runs is drained before it does."""
    signal.signal(signal.SIGTERM, _leave)
    drained = threading.Event()
    threading.Thread(target=_have_time, args=(drained,), name="alarm", daemon=True).start()
    with running(settings, store) as controller:
        try:
            yield controller
        finally:
            controller.drain()
    drained.set()


def _leave(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(0)


def _have_time(drained: threading.Event) -> None:
    """Ray's core puts a handler of its own before ours, whose alarm aborts the process three seconds after SIGTERM."""
    while not drained.wait(1.0):
        signal.alarm(0)


def _zygotes(settings: Settings) -> list[Zygote]:
    """One for cold starts and one for warm ones. Engines of a cluster run elsewhere, where these do not reach."""
    folder = Path(tempfile.gettempdir())
    if not settings.preload or settings.cluster_address is not None or not can_offer(folder):
        return []
    try:
        for_ranks = questions.catalogue(settings).for_ranks
    except questions.EngineEnvironmentError:
        # Whoever submits a matrix is told.
        return []
    return [Zygote(str(settings.python), folder, number, for_ranks) for number in range(2)]
