"""The first page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from starlette.responses import HTMLResponse

from service.api.dependencies import StoreDependency
from service.dashboard.overview_view import failing, newest_by_name, recent, running
from service.dashboard.pages import FrameDependency, html
from service.dashboard.render import render
from service.store import Store, repositories
from service.store.repositories import glances

LOOKED_AT = 100
"""Sweeps among which the newest of each name is looked for."""

SHOWN = 8
"""Sweeps in the list."""

MOST_FAILING, MOST_RUNNING = 200, 50

router = APIRouter(include_in_schema=False)


@router.get("/")
def show_overview(store: StoreDependency, frame: FrameDependency) -> HTMLResponse:
    """What needs attention, what runs, what ran."""
    return html(render("overview.html", frame, **_context(store)))


@router.get("/overview/table")
def show_table(store: StoreDependency, frame: FrameDependency) -> HTMLResponse:
    """The part of the first page that changes, for the script to swap in."""
    return html(render("_overview.html", frame, **_context(store)))


def _context(store: Store) -> dict[str, Any]:
    now = datetime.now(UTC)
    with store.reading() as session:
        sweeps = repositories.list_sweeps(session, LOOKED_AT)
        pairs = newest_by_name(sweeps)
        ids = [sweep.id for pair in pairs.values() for sweep in pair]
        not_ok = glances.cells_not_ok(session, ids, MOST_FAILING)
        cells = glances.running_cells(session, MOST_RUNNING)
        live = {sweep_id: repositories.latest_phases(session, sweep_id) for sweep_id in {c.sweep_id for c in cells}}
    return {
        "failing": failing(pairs, not_ok),
        "running": running(cells, live, now),
        "recent": recent(sweeps[:SHOWN], now),
        "none": not sweeps,
    }
