"""What Prometheus is told, in its text format.

Counters and histograms are of this process since it began: they grow with what its store commits. Gauges are read as
they are scraped, from the database and from Ray, so they are true of all controllers together.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.dispatch.occupancy import Occupancy
from service.store import Store, repositories
from service.store.notes import CellEnded, EventsStored, RunEnded
from service.store.schedule_records import Fire

logger = logging.getLogger(__name__)

PHASE_BUCKETS_S = (0.1, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 1800)
LAG_BUCKETS_S = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 120)


class Metrics:
    """Observes ``store`` from now on. ``occupancy``: total and free of each resource; ``clock``: Unix time."""

    def __init__(
        self, store: Store, occupancy: Callable[[], Mapping[str, Occupancy]], clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._registry = CollectorRegistry()
        self._cells = self._counter(
            "cells", "Cells that ended, by what was found and whether that was expected.", "verdict", "ok"
        )
        self._runs = self._counter("runs", "Runs that ended, by how far they got.", "state")
        self._fires = self._counter("schedule_fires", "Times of schedules that were served.", "cause", "state")
        self._phases = Histogram(
            "shardproof_phase_seconds",
            "Time of each rank in each phase of a timed start, compile phases included.",
            ("arm", "phase"),
            buckets=PHASE_BUCKETS_S,
            registry=self._registry,
        )
        self._lag = Histogram(
            "shardproof_event_lag_seconds",
            "From when something happened in a run until it was stored.",
            buckets=LAG_BUCKETS_S,
            registry=self._registry,
        )
        self._registry.register(_AsItIsNow(store, occupancy))
        store.observe(self._note)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """The metrics and their media type, in the form that the ``Accept`` header asks for."""
        encode, media_type = choose_encoder(accept)
        return encode(self._registry), media_type

    def _counter(self, name: str, documentation: str, *labels: str) -> Counter:
        return Counter(f"shardproof_{name}", documentation, labels, registry=self._registry)

    def _note(self, what: object) -> None:
        match what:
            case CellEnded():
                self._cells.labels(what.verdict, str(what.ok).lower()).inc()
            case RunEnded():
                self._runs.labels(what.state).inc()
                self._note_phases(what)
            case EventsStored():
                now = self._clock()
                for event in what.events:
                    self._lag.observe(max(0.0, now - event.at))
            case Fire():
                self._fires.labels(what.cause, what.state).inc()

    def _note_phases(self, run: RunEnded) -> None:
        for start in run.evidence.compile.starts if run.evidence else ():
            for rank in start.times.ranks:
                for phase in rank.phases:
                    self._phases.labels(start.role, phase.name).observe(phase.s)


class _AsItIsNow(Collector):
    def __init__(self, store: Store, occupancy: Callable[[], Mapping[str, Occupancy]]) -> None:
        self._store = store
        self._occupancy = occupancy

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("shardproof_database_up", "Whether the database answers: 1 or 0.")
        try:
            yield from self._queue()
            up.add_metric([], 1)
        except Exception:
            # Whoever scrapes is told; everything else is still worth knowing.
            logger.exception("metrics of the database")
            up.add_metric([], 0)
        yield up
        yield from self._slots()

    def _queue(self) -> Iterator[Metric]:
        with self._store.reading() as session:
            cells = repositories.open_cells(session)
            waiting = repositories.next_time(session)
        depth = GaugeMetricFamily("shardproof_queue_cells", "Cells of sweeps that go on, by state.", labels=["state"])
        for state, count in cells.items():
            depth.add_metric([state], count)
        yield depth
        if waiting is not None:
            next_time = GaugeMetricFamily(
                "shardproof_schedule_next_timestamp_seconds", "When the next schedule is due, Unix time."
            )
            next_time.add_metric([], waiting.timestamp())
            yield next_time

    def _slots(self) -> Iterator[Metric]:
        total = GaugeMetricFamily("shardproof_slots", "CPUs and GPUs of the Ray cluster.", labels=["resource"])
        used = GaugeMetricFamily("shardproof_slots_used", "Those of them that runs hold.", labels=["resource"])
        for resource, found in self._occupancy().items():
            total.add_metric([resource], found.total)
            used.add_metric([resource], found.total - found.free)
        yield total
        yield used
