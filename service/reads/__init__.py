"""``shardproof bench reads``: how long the API takes to answer when the store holds a million runs.

Both databases are made for it and thrown away: SQLite in a folder, PostgreSQL on a server of its own where the extra
``postgres`` is installed. The measured application is the one that ``shardproof serve`` serves, in this process.
"""

from __future__ import annotations

import asyncio
import platform
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from fastapi import FastAPI

from service.app import create_app
from service.bench import READS
from service.dispatch.controller import Controller
from service.domain.keys import Scope
from service.keyring import Keyring
from service.reads.load import load
from service.reads.measure import measure
from service.reads.series import FIGURES, SERIES, load_series
from service.reads.shape import Shape
from service.reads.upkeep import load_upkeep
from service.settings import Settings
from service.store import Store
from service.store.database import create_engine, upgrade
from service.store.local_postgres import NotInstalled, postgres_server
from workers.bench import LESS

GOAL_MS = 50.0
RUNS, QUICK_RUNS = 1_000_000, 10_000
TIMES, QUICK_TIMES = 300, 30
SERVER = {"shared_buffers": "256MB", "maintenance_work_mem": "256MB", "max_wal_size": "4GB", "fsync": "off"}
"""What a server of a small machine is given. A crash would cost the data; nothing that is measured writes."""


def _application(settings: Settings, store: Store) -> FastAPI:
    """What ``serve`` serves, without a limit to requests. Its controller dispatches nothing: it was not started."""
    unlimited = settings.model_copy(update={"rate_limit_per_minute": 0})
    return create_app(unlimited, store, Controller(unlimited, store))


@dataclass(frozen=True)
class Filled:
    """A database with what there is to read; ``loading_s`` seconds went by until it was in."""

    name: str
    store: Store
    loading_s: float


def reads(settings: Settings, quick: bool) -> dict[str, Any]:
    """Measure every list and reports on each database; see ``service.bench.run_bench`` for what comes back."""
    shape = Shape(QUICK_RUNS if quick else RUNS)
    times = QUICK_TIMES if quick else TIMES
    rows: list[dict[str, Any]] = []
    notes: list[str] = [_loaded(shape)]
    others: list[str] = []
    for database in (_sqlite, _postgresql):
        try:
            with database(shape) as filled:
                _, key = Keyring(filled.store).create(READS, Scope.ADMIN, None, READS)
                taken, others = asyncio.run(measure(_application(settings, filled.store), shape, times, key))
        except NotInstalled as error:
            notes.append(f"PostgreSQL was left out: {error}")
            continue
        rows += [item.row(filled.name) for item in taken]
        notes.append(f"{filled.name} took {filled.loading_s:.0f} s to load")
    if others:
        notes.append(f"not measured, since nothing was there to list: {', '.join(others)}")
    worst = max(rows, key=lambda row: float(row["p99_ms"]))
    notes.append(f"the slowest is {worst['what']} on {worst['database']}")
    return {
        "name": READS,
        "figure": worst["p99_ms"],
        "unit": "ms, the 99th percentile of the slowest answer",
        "goal": GOAL_MS,
        "better": LESS,
        "rows": rows,
        "environment": _environment(),
        "notes": notes,
    }


@contextmanager
def _sqlite(shape: Shape) -> Iterator[Filled]:
    with (
        tempfile.TemporaryDirectory(prefix="shardproof-reads-") as folder,
        _filled("SQLite", f"sqlite:///{Path(folder) / 'shardproof.db'}", shape) as filled,
    ):
        yield filled


@contextmanager
def _postgresql(shape: Shape) -> Iterator[Filled]:
    with postgres_server(SERVER) as server, _filled("PostgreSQL", server.create("reads"), shape) as filled:
        yield filled


@contextmanager
def _filled(name: str, url: str, shape: Shape) -> Iterator[Filled]:
    upgrade(url)
    engine = create_engine(url)
    began = time.perf_counter()
    load(engine, shape, load_series, load_upkeep)
    taken = time.perf_counter() - began
    engine.dispose()
    store = Store(engine)
    try:
        yield Filled(name, store, taken)
    finally:
        store.close()


def _loaded(shape: Shape) -> str:
    sweeps = list(shape.sweeps())
    runs = sum(len(sweep.cells) * sweep.attempts for sweep in sweeps)
    events = sum(len(sweep.cells) * sweep.attempts * sweep.events for sweep in sweeps)
    whole = sum(sweep.whole for sweep in sweeps)
    return (
        f"{len(sweeps)} sweeps with {runs} runs and {events} events; {whole} sweeps, those whose reports are read "
        "among them, have evidence and settings of the size that real runs leave, the others the least there can be; "
        f"{len(SERIES)} series with {len(FIGURES)} figures of every cell that has ended"
    )


def _environment() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "sqlalchemy": version("sqlalchemy"),
        "psycopg": version("psycopg"),
        "cores": psutil.cpu_count(),
    }
