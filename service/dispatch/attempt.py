"""One run of a leased job, from its slots to what it came to, followed in a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

from sqlalchemy.orm import Session

from service.dispatch.cluster import slots
from service.dispatch.execution import Halt, RunBroken, RunLost, RunStopped, execute
from service.dispatch.intake import Intake
from service.dispatch.leases import Lease, Leases, NoLongerMine
from service.dispatch.patience import Away, patiently_stored
from service.dispatch.seats import Seats
from service.domain.lifecycle import Kind
from service.settings import Settings
from service.store import Store
from service.store.queue_records import JobKind
from service.store.records import NewEvent
from workers.protocol import ArmReport, Event, Evidence

logger = logging.getLogger(__name__)


class Attempt:
    """``given_up``: the controller leaves, nothing is waited for any more. ``placed``: told when it has slots.

    ``overtaken``: how often a younger one had its slots first.
    """

    def __init__(
        self,
        lease: Lease,
        settings: Settings,
        store: Store,
        leases: Leases,
        intake: Intake,
        seats: Seats,
        given_up: threading.Event,
        placed: Callable[[str], None],
    ) -> None:
        self.lease = lease
        self.halt = Halt()
        self.overtaken = 0
        self._settings = settings
        self._store = store
        self._leases = leases
        self._intake = intake
        self._seats = seats
        self._given_up = given_up
        self._placed = placed

    @property
    def run_id(self) -> str:
        return self.lease.run.run_id

    def carry_out(self, free: Callable[[], None]) -> None:
        """Follow the run to its end and store that. ``free`` is called when it has no slots any more."""
        try:
            self._carry_out(free)
        except (RunStopped, NoLongerMine, Away) as error:
            logger.info("run %s: %s", self.run_id, error)
        except RunBroken as error:
            logger.exception("run %s of cell %s", self.run_id, self.lease.job.cell_id)
            self._end(str(error), Kind.BREAK)
        except Exception as error:
            # Nobody knows whether it would come again: it is tried as often as what is lost.
            logger.exception("run %s of cell %s", self.run_id, self.lease.job.cell_id)
            self._end(f"the run could not be carried out: {type(error).__name__}: {error}", Kind.LOSE)

    def _carry_out(self, free: Callable[[], None]) -> None:
        try:
            conclusion = self._follow()
        except RunLost as lost:
            why = str(lost)
            self._intake.flush()
            self._in_store(lambda session: self._leases.lose(session, self.lease, why))
            return
        finally:
            free()
        # What happened is there before it is said to be over.
        self._intake.flush()
        self._in_store(conclusion)

    def _end(self, why: str, kind: Kind) -> None:
        try:
            self._in_store(lambda session: self._leases.lose(session, self.lease, why, kind))
        except (NoLongerMine, Away) as error:
            logger.info("run %s: %s", self.run_id, error)

    def _follow(self) -> Callable[[Session], None]:
        """What the run came to, to be stored."""
        return self._follow_cell() if self.lease.job.kind is JobKind.CELL else self._follow_arm()

    def _follow_cell(self) -> Callable[[Session], None]:
        evidence: Evidence | None = None
        for event in self._events():
            if event.kind == "evidence":
                evidence = Evidence.model_validate(event.data)
            else:
                self._note(event)
        return lambda session: self._leases.come_out(session, self.lease, evidence)

    def _follow_arm(self) -> Callable[[Session], None]:
        report: ArmReport | None = None
        for event in self._events():
            if event.kind == "arm-finished":
                report = ArmReport.model_validate(event.data)
            if event.kind != "evidence":
                self._note(event)
        return lambda session: self._leases.come_out_arm(session, self.lease, report)

    def _events(self) -> Iterator[Event]:
        needed = slots(self.lease.job.ranks, self.lease.job.devices)
        run = self.lease.run
        raws = execute(run, needed, self._settings, self._seats, self.halt, lambda: self._placed(run.run_id))
        for number, raw in enumerate(raws):
            if number == 0:
                self._in_store(lambda session: self._leases.start(session, self.lease))
            yield Event.model_validate(raw)

    def _note(self, event: Event) -> None:
        job = self.lease.job
        run_id = self.run_id if job.kind is JobKind.CELL else None
        self._intake.put(NewEvent.of(event, job.sweep_id, job.cell_id, run_id))

    def _in_store(self, work: Callable[[Session], None]) -> None:
        patiently_stored(self._store, work, self._given_up)
