"""``shardproof bench pages``: how long the pages take where there is much to show.

What is measured is what ``shardproof serve`` serves, on a store of its own: how long its answers take in this process,
and when a real browser shows something of them.
"""

from __future__ import annotations

import asyncio
import platform
import statistics
import tempfile
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient

from service.app import create_app
from service.bench import PAGES
from service.collector import spare_what_stays
from service.dispatch.controller import Controller
from service.domain.startup import NotMeasured
from service.page_chromium import NoBrowser, Shown, shown
from service.page_load import FIGURES, SERIES, Amount, fill
from service.settings import Settings
from service.store import Store
from service.store.database import create_engine, upgrade
from workers.bench import LESS

GOAL_MS, CONTENT_MS = 150.0, 1000.0
WHOLE, QUICK = Amount(cells=400, points=100_000), Amount(cells=16, points=2_000)
TIMES, QUICK_TIMES, UNTIMED = 150, 20, 3
VISITS, QUICK_VISITS = 5, 2

_ALL = "&".join(f"figure={name}" for name in FIGURES)


def pages(settings: Settings, quick: bool) -> dict[str, Any]:
    """Measure each page; see ``service.bench.run_bench`` for what comes back."""
    amount = QUICK if quick else WHOLE
    with tempfile.TemporaryDirectory(prefix="shardproof-pages-") as folder:
        url = f"sqlite:///{Path(folder) / 'shardproof.db'}"
        upgrade(url)
        engine = create_engine(url)
        store = Store(engine)
        fill(engine, store, amount)
        own = settings.model_copy(update={"home": Path(folder), "rate_limit_per_minute": 0})
        app = create_app(own, store, Controller(own, store))
        paths = _paths(amount)
        spare_what_stays()
        scripts = _of_scripts()
        taken = asyncio.run(_answers(app, paths | scripts, QUICK_TIMES if quick else TIMES))
        seen, notes = _seen(app, paths, QUICK_VISITS if quick else VISITS)
        store.close()
    rows = [_row(name, *measured, seen.get(name)) for name, measured in taken.items()]
    worst = max(rows, key=lambda row: float(row["p99_ms"]))
    return {
        "name": PAGES,
        "figure": worst["p99_ms"],
        "unit": "ms of the server, the 99th percentile of the slowest page",
        "goal": GOAL_MS,
        "better": LESS,
        "rows": rows,
        "environment": _environment(),
        "notes": [f"a sweep of {amount.cells} cells, a series with {amount.points} points", *notes],
    }


def _paths(amount: Amount) -> dict[str, str]:
    sweep = amount.sweep
    return {
        "overview": "/",
        "sweeps": "/sweeps/",
        "sweep": f"/sweeps/{sweep.id}",
        "cell": f"/sweeps/{sweep.id}/cells/{sweep.cells[0]}",
        "trends": "/trends/",
        "series": f"/trends/{SERIES}",
        "series, all figures": f"/trends/{SERIES}?{_ALL}",
    }


def _of_scripts() -> dict[str, str]:
    """What the script of a page asks for, which no browser shows by itself."""
    chart = f"/trends/{SERIES}/chart"
    return {"chart": chart, "chart, all figures": f"{chart}?{_ALL}"}


async def _answers(app: FastAPI, paths: Mapping[str, str], times: int) -> dict[str, tuple[list[float], int]]:
    """Seconds of each answer, shortest first, and the bytes of the last one."""
    transport = ASGITransport(app, client=("127.0.0.1", 1))
    found: dict[str, tuple[list[float], int]] = {}
    async with AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=120) as client:
        for name, path in paths.items():
            took, size = [], 0
            for _ in range(times + UNTIMED):
                began = time.perf_counter()
                response = await client.get(path)
                took.append(time.perf_counter() - began)
                if response.is_error:
                    raise NotMeasured(f"GET {path} answers {response.status_code}: {response.text[:500]}")
                size = len(response.content)
            found[name] = (sorted(took[UNTIMED:]), size)
    return found


def _seen(app: FastAPI, paths: Mapping[str, str], times: int) -> tuple[dict[str, Shown], list[str]]:
    try:
        seen = shown(app, paths, times)
    except NoBrowser as error:
        return {}, [f"first content was left out: {error}"]
    slowest = max(seen, key=lambda name: seen[name].slowest_ms)
    return seen, [f"the slowest first content is that of {slowest}: goal {CONTENT_MS:.0f} ms"]


def _row(name: str, took: list[float], size: int, seen: Shown | None) -> dict[str, Any]:
    return {
        "page": name,
        "answers": len(took),
        "p50_ms": round(1000 * statistics.median(took), 1),
        "p99_ms": round(1000 * took[min(len(took) - 1, int(0.99 * len(took)))], 1),
        "size_kb": round(size / 1000, 1),
        "first_content_ms": None if seen is None else round(seen.middle_ms),
        "slowest_ms": None if seen is None else round(seen.slowest_ms),
        "fetched_kb": None if seen is None else round(seen.fetched / 1000, 1),
    }


def _environment() -> dict[str, Any]:
    return {"python": platform.python_version(), "sqlalchemy": version("sqlalchemy"), "cores": psutil.cpu_count()}
