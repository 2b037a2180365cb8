"""The controller: accepts matrices, stores their sweeps and drives them. ``run`` and ``serve`` use the same one."""

from __future__ import annotations

import contextlib
import logging
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy.orm import Session

from service.dispatch import identity, questions, retention
from service.dispatch.cluster import cluster
from service.dispatch.plan import Plan, plan
from service.dispatch.preview import preview
from service.dispatch.sweep import SweepDriver
from service.domain.document import Document
from service.domain.lifecycle import State
from service.domain.preview import Preview
from service.domain.verdict import Verdict
from service.settings import Settings
from service.store import Store, repositories
from service.store.records import NewSweep
from service.sweep_ids import new_sweep_id
from workers.zygote.client import Zygote, can_offer

logger = logging.getLogger(__name__)

PARALLEL_RUNS = 32
"""Runs that may wait for or hold slots at once; what really runs at once is Ray's business."""


class Controller:
    """Use inside :func:`running`, which connects to Ray and waits for started sweeps when it is left."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings = settings
        self._store = store
        self._owner = identity.me()
        self._runs = ThreadPoolExecutor(PARALLEL_RUNS, thread_name_prefix="run")
        self._sweeps: list[threading.Thread] = []
        self._cluster_ready = threading.Event()
        self._cluster_error: BaseException | None = None

    def submit(self, document: Document, only: str | None = None, *, sweep_id: str | None = None) -> str:
        """Store the sweep of a matrix (or of its cell ``only``), let it start, and return its id.

        ``sweep_id``: the id it is to have, where somebody chose it before.

        Raises:
            MatrixError: with every problem of the matrix, before anything is stored.
            EngineEnvironmentError: when the engine environment does not answer.
        """
        planned = plan(document, self._settings, only)
        sweep_id = sweep_id or new_sweep_id()
        self._accept(sweep_id, planned)
        thread = threading.Thread(target=self._drive, args=(sweep_id, planned), name=sweep_id, daemon=True)
        self._sweeps.append(thread)
        thread.start()
        return sweep_id

    def preview(self, document: Document) -> Preview:
        """What ``submit`` would make of a matrix; nothing is stored or started.

        Raises:
            MatrixError, EngineEnvironmentError: as ``submit``.
        """
        return preview(plan(document, self._settings))

    def _accept(self, sweep_id: str, planned: Plan) -> None:
        matrix = planned.matrix
        sweep = NewSweep(sweep_id, matrix.name, datetime.now(UTC), self._owner, matrix.source, asdict(matrix.timeouts))
        with self._store.transaction() as session:
            repositories.create_sweep(session, sweep, matrix.cells)
            repositories.set_sweep_environment(session, sweep_id, planned.environment)
            for item in planned.cells:
                repositories.record_audit(
                    session, sweep_id, item.cell.id, item.audited, item.fingerprint, item.environment
                )
                repositories.set_cell_state(session, sweep_id, item.cell.id, State.QUEUED)
                if item.duplicate_of is not None:
                    repositories.set_duplicate(session, sweep_id, item.cell.id, item.duplicate_of.id)

    def _drive(self, sweep_id: str, planned: Plan) -> None:
        self._cluster_ready.wait()
        try:
            if self._cluster_error is not None:
                raise self._cluster_error
            retention.claim(self._settings.artifacts_dir / sweep_id)
            SweepDriver(sweep_id, planned, self._settings, self._store, self._runs).drive()
        except Exception as error:
            logger.exception("sweep %s", sweep_id)
            self._give_up(sweep_id, f"the sweep could not go on: {type(error).__name__}: {error}")
        self._tidy([sweep_id])

    def _give_up(self, sweep_id: str, why: str) -> None:
        with self._store.transaction() as session:
            for cell in repositories.cells_of(session, sweep_id):
                if not cell.state.ended:
                    _crash(session, sweep_id, cell.id, why)
            repositories.end_sweep(session, sweep_id)

    def recover(self) -> list[str]:
        """Conclude what controllers that are no longer there left unfinished; the ids of their sweeps.

        Their engines ended with them. What they left on disk and serves nobody is taken away.
        """
        why = "the controller that drove this sweep ended before this cell did; run the matrix again"
        with self._store.transaction() as session:
            for sweep_id, cell_id in repositories.abandoned_cells(session, identity.alive):
                _crash(session, sweep_id, cell_id, why)
            sweeps = repositories.abandoned_sweeps(session, identity.alive)
            for sweep_id in sweeps:
                repositories.end_sweep(session, sweep_id)
        self._tidy(sweeps)
        return sweeps

    def _tidy(self, ended: list[str]) -> None:
        """Take away what serves nobody any more. What cannot be taken away costs disk and no sweep."""
        try:
            for sweep_id in ended:
                retention.forget_caches(self._settings.artifacts_dir / sweep_id)
            retention.tidy(self._settings, self._store)
        except Exception:
            logger.exception("old artifacts in %s", self._settings.artifacts_dir)

    def connected(self, error: BaseException | None = None) -> None:
        """Sweeps may start; with ``error``, none can."""
        self._cluster_error = error
        self._cluster_ready.set()

    def wait(self) -> None:
        """Until every sweep that was submitted here has ended."""
        for thread in self._sweeps:
            thread.join()


@contextlib.contextmanager
def running(settings: Settings, store: Store) -> Iterator[Controller]:
    """A controller that is connected to Ray, after it has put in order what dead ones left.

    Ray starts in the background: a matrix can be audited, and refused, meanwhile.
    """
    controller = Controller(settings, store)
    controller.recover()
    leave = threading.Event()

    def stay_connected() -> None:
        try:
            with cluster(settings):
                controller.connected()
                leave.wait()
        except Exception as error:
            controller.connected(error)

    connection = threading.Thread(target=stay_connected, name="ray", daemon=True)
    connection.start()
    zygotes = _zygotes(settings)
    try:
        yield controller
    finally:
        leave.set()
        connection.join()
        for zygote in zygotes:
            zygote.close()


def _zygotes(settings: Settings) -> list[Zygote]:
    """One for cold starts and one for warm ones. Engines of a cluster run elsewhere, where these do not reach."""
    folder = Path(tempfile.gettempdir())
    if not settings.preload or settings.ray_address is not None or not can_offer(folder):
        return []
    try:
        for_ranks = questions.catalogue(settings).for_ranks
    except questions.EngineEnvironmentError:
        # Whoever submits a matrix is told.
        return []
    return [Zygote(str(settings.python), folder, number, for_ranks) for number in range(2)]


def _crash(session: Session, sweep_id: str, cell_id: str, why: str) -> None:
    repositories.conclude_cell(session, sweep_id, cell_id, Verdict.CRASHED, False, [f"crashed: {why}"], State.CRASHED)
