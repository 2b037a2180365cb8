"""Fill a database with series: what became of a configuration night after night, its figures, and what is told of it.

Each ended sweep of the shape is a night. Its cells are spread over the series, so that each gets about as many nights.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from sqlalchemy import Connection

from service.domain.notices import NoticeKind
from service.domain.regression import Condition
from service.reads.rows import Row, insert, stamp
from service.reads.shape import BEGIN, Shape, Sweep
from service.store.plain import dump_json
from service.store.series_models import NoticeRow, OutcomeRow, PointRow, SeriesRow, StandingRow

SERIES = tuple(f"{number:016x}" for number in range(1000))
FIGURES = {"cold_s": 90.0, "warm_s": 12.0}
"""Figures, each with what it is about."""

NOTICE_EVERY = 50
"""So many outcomes for one notice."""

AT_ONCE = 20_000
SETTINGS = dump_json({"model": "tiny:llama", "tensor_parallel_size": 2})
VERSIONS = dump_json({"vllm": "0.31.0", "torch": "2.11.0", "ray": "2.56.0", "python": "3.11.2"})


def load_series(connection: Connection, shape: Shape) -> None:
    """Needs the sweeps of ``shape`` in the database."""
    nights = [sweep for sweep in shape.sweeps() if not sweep.active]
    newest = nights[-1]
    insert(connection, SeriesRow, [_series(series_id, newest.number) for series_id in SERIES])
    outcomes = enumerate((sweep, cell_id) for sweep in nights for cell_id in sweep.cells)
    while batch := list(islice(outcomes, AT_ONCE)):
        insert(connection, OutcomeRow, [_outcome(place, sweep, cell_id) for place, (sweep, cell_id) in batch])
        insert(connection, PointRow, [row for place, (sweep, _) in batch for row in _points(place, sweep)])
        told = [_notice(place, *cell) for place, cell in batch if place % NOTICE_EVERY == 0]
        insert(connection, NoticeRow, told)
    insert(connection, StandingRow, list(_standings(newest)))


def _of(place: int) -> str:
    return SERIES[place % len(SERIES)]


def _series(series_id: str, newest: int) -> Row:
    return {
        "id": series_id,
        "name": f"nightly {series_id}",
        "settings": SETTINGS,
        "environment": "default",
        "device": "cpu",
        "devices": 0,
        "cores": 2,
        "pinned": False,
        "created_at": stamp(0),
        "last_at": stamp(newest, 1),
        "last_verdict": "pass",
        "last_ok": True,
    }


def _outcome(place: int, sweep: Sweep, cell_id: str) -> Row:
    return {
        "id": place + 1,
        "series_id": _of(place),
        "sweep_id": sweep.id,
        "cell_id": cell_id,
        "run_id": None,
        "at": stamp(sweep.number, 1),
        "verdict": "pass",
        "ok": True,
        "versions": VERSIONS,
    }


def _points(place: int, sweep: Sweep) -> Iterator[Row]:
    for figure, about in FIGURES.items():
        value = about * (1 + place % 7 / 100)
        yield {
            "outcome_id": place + 1,
            "series_id": _of(place),
            "figure": figure,
            "at": sweep.ended.timestamp(),
            "value": value,
            "lowest": value * 0.99,
            "highest": value * 1.02,
            "repeats": 3,
            "baseline": about,
        }


def _notice(place: int, sweep: Sweep, cell_id: str) -> Row:
    return {
        "at": stamp(sweep.number, 1),
        "kind": NoticeKind.REGRESSION,
        "series_id": _of(place),
        "figure": "cold_s",
        "sweep_id": sweep.id,
        "cell_id": cell_id,
        "what": "cold start 103.5 s, baseline 90.0 s (+15 %)",
        "before": FIGURES["cold_s"],
        "after": 103.5,
        "ratio": 1.15,
        "since_sweep_id": sweep.id,
        "versions_before": VERSIONS,
        "versions_after": VERSIONS,
    }


def _standings(newest: Sweep) -> Iterator[Row]:
    for series_id in SERIES:
        for figure, about in FIGURES.items():
            yield {
                "series_id": series_id,
                "figure": figure,
                "state": Condition.STEADY,
                "point_id": 1,
                "at": newest.ended.timestamp(),
                "value": about,
                "baseline": about,
                "lower": about * 0.9,
                "upper": about * 1.1,
                "noise": 0.03,
                "ratio": 1.0,
                "points": 100,
                "missing": 0,
                "from_at": BEGIN.timestamp(),
            }
