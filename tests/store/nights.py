"""Series with a point each night, for tests of everything that reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from service.domain.figures import JUDGED
from service.domain.measured import Measured
from service.domain.regression import DEFAULT_RULES
from service.domain.verdict import Verdict
from service.store import Store, repositories
from service.store.repositories.standings import rejudge
from service.store.series_records import NewOutcome, NewSeries

FIRST = datetime(2026, 11, 1, 2, 30, tzinfo=UTC)
VERSIONS = {"vllm": "0.30.0", "torch": "2.10.0"}


def series(series_id: str = "s1", name: str = "sp-full-graph") -> NewSeries:
    return NewSeries(series_id, name, {"tensor_parallel_size": 2}, "default", "cpu", 0, 2)


def night(number: int) -> datetime:
    return FIRST + timedelta(days=number)


def sweep_of(number: int) -> str:
    return f"sweep-{number:03}"


def add_night(
    store: Store,
    number: int,
    figures: Mapping[str, float],
    of: NewSeries | None = None,
    cell: str = "c0",
    verdict: Verdict = Verdict.PASS,
    versions: Mapping[str, str] = VERSIONS,
) -> None:
    """One outcome with a point for each figure, judged as it comes."""
    found = of or series()
    points = tuple(Measured(figure, value, value * 0.99, value * 1.02, 3) for figure, value in figures.items())
    outcome = NewOutcome(
        series_id=found.id,
        sweep_id=sweep_of(number),
        cell_id=cell,
        run_id=f"run-{number}",
        at=night(number),
        verdict=verdict,
        ok=verdict is Verdict.PASS,
        versions=versions,
        points=points,
    )
    with store.transaction() as session:
        repositories.outcomes.add_outcome(session, found, outcome)
        for figure in figures:
            if figure in JUDGED:
                rejudge(session, found.id, figure, DEFAULT_RULES)


def add_nights(store: Store, values: Sequence[float], figure: str = "cold_s", of: NewSeries | None = None) -> None:
    for number, value in enumerate(values):
        add_night(store, number, {figure: value}, of)
