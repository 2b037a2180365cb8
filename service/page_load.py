"""What ``shardproof bench pages`` shows: a sweep of 400 cells over two axes, and a series with 100,000 points."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine, insert, update

from service.domain.regression import DEFAULT_RULES
from service.reads.load import load
from service.reads.shape import Shape, Sweep
from service.store import Store
from service.store.models import CellRow, SweepRow
from service.store.repositories.standings import rejudge
from service.store.series_models import OutcomeRow, PointRow, SeriesRow

SERIES = "0123456789abcdef"
FIGURES = {"cold_s": 90.0, "warm_s": 12.0, "compile_s": 40.0, "peak_rss_bytes": 9e9, "rank_spread_s": 1.0}
"""Figures, each with what it is about."""

BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
AXES = ("max_num_batched_tokens", "max_num_seqs")
AT_ONCE = 5_000
NOISE = 0.03

Row = dict[str, Any]


@dataclass(frozen=True)
class Amount:
    """``cells`` of the sweep, a square; ``points`` of the series, spread over its figures."""

    cells: int
    points: int

    @property
    def nights(self) -> int:
        return self.points // len(FIGURES)

    @property
    def sweep(self) -> Sweep:
        names = tuple(f"c4d1f0{place:06x}" for place in range(self.cells))
        return Sweep(1, names, attempts=1, events=60, whole=True)


@dataclass(frozen=True)
class _One(Shape):
    """One sweep and no others."""

    one: Sweep | None = None

    def sweeps(self) -> Iterator[Sweep]:
        if self.one is not None:
            yield self.one


def fill(engine: Engine, store: Store, amount: Amount) -> None:
    """Store both in an empty database."""
    sweep = amount.sweep
    load(engine, _One(runs=amount.cells, one=sweep))
    with engine.begin() as connection:
        _lay_out(connection, sweep, round(amount.cells**0.5))
        _add_series(connection, amount)
    with store.transaction() as session:
        for figure in FIGURES:
            rejudge(session, SERIES, figure, DEFAULT_RULES)


def _lay_out(connection: Connection, sweep: Sweep, side: int) -> None:
    """Give each cell a place of its own on two axes."""
    values = [[2**place for place in range(side)], list(range(1, side + 1))]
    matrix = {"name": "nightly", "engine": {"model": "tiny:llama"}, "matrix": dict(zip(AXES, values, strict=True))}
    connection.execute(update(SweepRow).where(SweepRow.id == sweep.id).values(matrix=matrix))
    for place, cell_id in enumerate(sweep.cells):
        requested = {AXES[0]: values[0][place // side % side], AXES[1]: values[1][place % side], "dtype": "float32"}
        cell = update(CellRow).where(CellRow.sweep_id == sweep.id, CellRow.id == cell_id)
        connection.execute(cell.values(requested=requested))


def _add_series(connection: Connection, amount: Amount) -> None:
    connection.execute(insert(SeriesRow).values(_series(amount)))
    chance = random.Random(7)
    for first in range(0, amount.nights, AT_ONCE):
        nights = range(first, min(first + AT_ONCE, amount.nights))
        connection.execute(insert(OutcomeRow), [_outcome(night) for night in nights])
        connection.execute(insert(PointRow), [row for night in nights for row in _points(night, chance)])


def _at(night: int) -> datetime:
    return BEGIN + timedelta(hours=2 * night)


def _series(amount: Amount) -> Row:
    return {
        "id": SERIES,
        "name": "nightly of many years",
        "settings": {"model": "tiny:llama", "tensor_parallel_size": 2},
        "environment": "default",
        "device": "cpu",
        "devices": 0,
        "cores": 2,
        "pinned": True,
        "created_at": BEGIN,
        "last_at": _at(amount.nights - 1),
        "last_verdict": "pass",
        "last_ok": True,
    }


def _outcome(night: int) -> Row:
    versions = {"vllm": f"0.{20 + night // 2000}.0", "torch": f"2.{5 + night // 6000}.0", "python": "3.11.2"}
    return {
        "id": night + 1,
        "series_id": SERIES,
        "sweep_id": f"{_at(night):%Y%m%d-%H%M%S}-{night % 16**6:06x}",
        "cell_id": "c0",
        "run_id": None,
        "at": _at(night),
        "verdict": "pass",
        "ok": True,
        "versions": versions,
    }


def _points(night: int, chance: random.Random) -> Iterator[Row]:
    for figure, about in FIGURES.items():
        # A step now and then, as new versions bring it, and the noise of a night.
        value = about * (1 + 0.05 * (night // 2000 % 3)) * chance.gauss(1.0, NOISE)
        yield {
            "outcome_id": night + 1,
            "series_id": SERIES,
            "figure": figure,
            "at": _at(night).timestamp(),
            "value": value,
            "lowest": value * 0.99,
            "highest": value * 1.02,
            "repeats": 3,
            "baseline": about,
        }
