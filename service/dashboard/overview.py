"""The first page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter
from sqlalchemy.orm import Session
from starlette.responses import HTMLResponse

from service.api.dependencies import StoreDependency
from service.dashboard.attention import BETTER, WORSE, better, failing, newest_by_name, told, unsubmitted
from service.dashboard.overview_view import recent, running
from service.dashboard.pages import FrameDependency, html
from service.dashboard.pinned import Pinned, pinned
from service.dashboard.render import render
from service.domain.figures import COLD_S, WARM_S
from service.store import Store, repositories
from service.store.records import SweepSummary
from service.store.repositories import glances, series, series_notices, series_points, series_state

LOOKED_AT = 100
"""Sweeps among which the newest of each name is looked for."""

SHOWN = 8
"""Sweeps in the list."""

MOST_FAILING, MOST_NOTICES, MOST_RUNNING, MOST_PINNED, MOST_FIRES = 200, 100, 50, 12, 50
BETTER_FOR = timedelta(days=3)
NIGHTS = timedelta(days=30)
"""What the lines of pinned series show."""

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
        cells = glances.running_cells(session, MOST_RUNNING)
        live = {sweep_id: repositories.latest_phases(session, sweep_id) for sweep_id in {c.sweep_id for c in cells}}
        found = _attention(session, sweeps, now)
        return {
            **found,
            "running": running(cells, live, now),
            "recent": recent(sweeps[:SHOWN], now),
            "pinned": _pinned(session, now),
            "empty": not sweeps and not found["attention"],
        }


def _attention(session: Session, sweeps: Sequence[SweepSummary], now: datetime) -> dict[str, Any]:
    lines = newest_by_name(sweeps)
    ids = [sweep.id for line in lines.values() for sweep in line]
    worse = series_notices.notices(session, MOST_NOTICES, kinds=WORSE)
    good = series_notices.notices(session, MOST_NOTICES, kinds=BETTER)
    of_series = series.names_of(
        session, {notice.series_id for notice in (*worse, *good) if notice.series_id is not None}
    )
    names = of_series | {sweep.id: sweep.name for sweep in sweeps}
    failed = failing(lines, glances.cells_not_ok(session, ids, MOST_FAILING))
    standings = series_state.attention(session, MOST_NOTICES)
    fires = unsubmitted(repositories.without_sweep(session, MOST_FIRES))
    return {
        "attention": [*fires, *failed, *told(worse, standings, names, {item.link for item in failed})],
        "better": better(good, names, now - BETTER_FOR),
    }


def _pinned(session: Session, now: datetime) -> list[Pinned]:
    kept = series.list_series(session, MOST_PINNED, pinned=True)
    standings = series_state.standings_of(session, [item.id for item in kept])
    lines = {
        (item.id, figure.name): series_points.columns_of(session, item.id, figure.name, now - NIGHTS)
        for item in kept
        for figure in (COLD_S, WARM_S)
    }
    return pinned(kept, standings, lines)
