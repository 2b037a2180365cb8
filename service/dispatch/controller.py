"""The controller: accepts matrices, stores their sweeps and has them run. ``run`` and ``serve`` use the same one."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from service.dispatch import identity, requests, retention
from service.dispatch.accept import Terms, accept, describe_environments
from service.dispatch.courses import Courses
from service.dispatch.driver import Driver
from service.dispatch.endings import Endings
from service.dispatch.leadership import Alone, Elected
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


class Controller:
    """Use inside :func:`running`, which connects to Ray and dispatches. Its methods may be called from any thread.

    ``alone``: its sweeps are its own, no other controller goes on with them, and it takes none of others.
    ``owner``: by what it is known in the database. ``connection``: that to Ray, which others keep.
    """

    def __init__(self, settings: Settings, store: Store, *, alone: bool = False, owner: str | None = None) -> None:
        self._settings = settings
        self._store = store
        self._owner = owner or identity.me()
        self._queue = self._owner if alone else SHARED
        self._endings = Endings(settings, store)
        self._courses = Courses(settings, self._endings.has_ended)
        self._driver = Driver(settings, store, self._courses, self._endings)
        self.connection = self._driver.connection
        self._leadership = Alone() if alone else Elected(store, self._owner)

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
            refuse_what_never_fits(document, planned, self.connection, self._settings)
        sweep_id = sweep_id or new_sweep_id()
        terms = Terms(self._queue, priority, max_parallel, key_id)
        with self._store.transaction() as session:
            accept(session, sweep_id, self._owner, planned, terms, self._settings)
        self._endings.expect(sweep_id)
        retention.claim(self._settings.artifacts_dir / sweep_id)
        describe_environments(planned, sweep_id, self._settings)
        self._look_whether_ended(sweep_id)
        self._driver.wake()
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
        self._driver.change(lambda session: requests.cancel(session, self._courses, sweep_id, cell_id))

    def rerun(self, sweep_id: str, cells: Sequence[str] | None = None) -> None:
        """Run cells of a sweep again, by their ids; without any, those that did not come out as expected.

        Raises:
            UnknownRecord: there is no such sweep or cell.
            InvalidTransition: one of them has not ended, or there is none to run again.
        """
        self._driver.change(lambda session: requests.rerun(session, self._courses, self._queue, sweep_id, cells))

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
        self._driver.drain()

    @property
    def leads(self) -> bool:
        """Is it this controller that dispatches?"""
        return self._driver.leads

    def trouble(self) -> str | None:
        """Why no sweep can start at present; ``None`` when it can."""
        return self.connection.trouble()

    def wait(self) -> None:
        """Until every sweep that was submitted here has ended."""
        self._endings.wait()

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
        self._endings.tidy(sweeps)
        return sweeps

    def dispatching(self) -> contextlib.AbstractContextManager[None]:
        """Lease and run what is in the queue, inside the block."""
        return self._driver.dispatching(self._queue, self._owner, self._leadership)

    def _look_whether_ended(self, sweep_id: str) -> None:
        """A sweep of which nothing is run ends as it is stored; one without a cluster never begins."""
        with self._store.reading() as session:
            ended = repositories.get_sweep(session, sweep_id).state is SweepState.ENDED
        if ended:
            self._endings.has_ended(sweep_id)
        elif self.connection.hopeless:
            self._driver.connected()
