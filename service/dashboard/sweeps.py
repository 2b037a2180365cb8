"""The pages of sweeps: all of them, and one with its heat map."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query
from starlette.responses import HTMLResponse

from service.api.dependencies import StoreDependency
from service.dashboard.figures import Figures, FiguresDependency
from service.dashboard.filters import Filter
from service.dashboard.lines import TIMES, baselines_of, lines_of
from service.dashboard.pages import FrameDependency, html
from service.dashboard.render import render
from service.dashboard.sweep_view import SweepHead, SweepView, sweep_view
from service.store import Store, repositories
from service.store.glance_records import CellGlance
from service.store.records import SweepRecord
from service.store.repositories import glances, series_points

PAGE = 50

router = APIRouter(prefix="/sweeps", include_in_schema=False)


def _filter(
    x: str = "",
    y: str = "",
    by: str = "",
    verdict: Annotated[tuple[str, ...], Query()] = (),
    value: Annotated[tuple[str, ...], Query()] = (),
    changed: str = "",
    page: Annotated[int, Query(ge=1, le=10**6)] = 1,
) -> Filter:
    chosen = tuple(item for item in value if item)
    return Filter(x, y, by, tuple(dict.fromkeys(verdict)), chosen, changed == "1", page)


FilterDependency = Annotated[Filter, Depends(_filter)]


@router.get("/")
def list_sweeps(store: StoreDependency, frame: FrameDependency, before: str | None = None) -> HTMLResponse:
    """Sweeps, newest first."""
    with store.reading() as session:
        sweeps = repositories.list_sweeps(session, PAGE + 1, before)
    page = sweeps[:PAGE]
    older = page[-1].id if len(sweeps) > PAGE else None
    return html(render("sweeps.html", frame, sweeps=page, older=older))


@router.get("/{sweep_id}")
def show_sweep(
    sweep_id: str, store: StoreDependency, figures: FiguresDependency, asked: FilterDependency, frame: FrameDependency
) -> HTMLResponse:
    """One sweep."""
    after, page = _view(store, figures, sweep_id, asked)
    return html(render("sweep.html", frame, page=page, after=after, linked=True))


@router.get("/{sweep_id}/table")
def show_table(
    sweep_id: str, store: StoreDependency, figures: FiguresDependency, asked: FilterDependency, frame: FrameDependency
) -> HTMLResponse:
    """The part of a sweep's page that changes, for the script to swap in."""
    _, page = _view(store, figures, sweep_id, asked)
    # It is shown one level up.
    return html(render("_sweep.html", replace(frame, up="../"), page=page, linked=True))


def _view(store: Store, figures: Figures, sweep_id: str, asked: Filter) -> tuple[int, SweepView]:
    """The number of the newest event, and the sweep as it is then or later."""
    with store.reading() as session:
        after = glances.newest_event(session, sweep_id)
        sweep = repositories.get_sweep(session, sweep_id)
        cells = glances.cells_at_a_glance(session, sweep_id)
        measured = figures.of(session, {cell.run_id for cell in cells if cell.run_id is not None})
        points = series_points.points_of_sweep(session, sweep_id, TIMES)
        live = repositories.latest_phases(session, sweep_id) if sweep.ended_at is None else []
    lines = lines_of(cells, measured, _link, baselines_of(points), live, datetime.now(UTC))
    return after, sweep_view(head_of(sweep), lines, asked)


def head_of(sweep: SweepRecord) -> SweepHead:
    return SweepHead(sweep.id, sweep.name, sweep.created_at, sweep.ended_at, sweep.artifacts_removed_at, sweep.matrix)


def _link(cell: CellGlance) -> str:
    """To the cell's page, from that of its sweep."""
    return "/".join((quote(cell.sweep_id, safe=""), "cells", quote(cell.id, safe="")))
