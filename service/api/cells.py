"""Cells: the list of a sweep, one with all that is known of it, and its attempts."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from service.api.dependencies import StoreDependency
from service.api.paging import After, Limit, cut
from service.api.problems import RESPONSES
from service.api.resources import CellPage, RunPage
from service.domain import cursor
from service.report import build_report
from service.store import repositories
from service.store.repositories import pages

CELLS, ATTEMPTS = "cells", "attempts"

router = APIRouter(prefix="/v1", tags=["cells"], responses=RESPONSES)


@router.get("/sweeps/{sweep_id}/cells")
def list_cells(sweep_id: str, store: StoreDependency, limit: Limit = 50, after: After = None) -> CellPage:
    """The cells of a sweep in the order of its matrix, without their results."""
    position = -1 if after is None else int(cursor.decode(CELLS, after, int)[0])
    with store.reading() as session:
        repositories.get_sweep(session, sweep_id)
        found = pages.page_of_cells(session, sweep_id, position, limit + 1)
    page, last = cut(found, limit)
    return CellPage(cells=page, next=None if last is None else cursor.encode(CELLS, last.position))


@router.get("/cells/{sweep_id}/{cell_id}")
def get_cell(sweep_id: str, cell_id: str, store: StoreDependency) -> dict[str, Any]:
    """A cell as it stands in the report of its sweep, and `run`: the id of the attempt that its result is of."""
    with store.reading() as session:
        sweep = repositories.get_sweep(session, sweep_id)
        cell = repositories.get_cell(session, sweep_id, cell_id)
        run = pages.latest_run(session, sweep_id, cell.duplicate_of or cell.id)
    (shown,) = build_report(sweep, [cell], [] if run is None else [run])["cells"]
    return {**shown, "sweep": sweep_id, "run": None if run is None else run.id}


@router.get("/cells/{sweep_id}/{cell_id}/runs")
def list_attempts(
    sweep_id: str, cell_id: str, store: StoreDependency, limit: Limit = 50, after: After = None
) -> RunPage:
    """The attempts at a cell, oldest first, without what they found out."""
    attempt = 0 if after is None else int(cursor.decode(ATTEMPTS, after, int)[0])
    with store.reading() as session:
        repositories.get_cell(session, sweep_id, cell_id)
        found = pages.page_of_attempts(session, sweep_id, cell_id, attempt, limit + 1)
    page, last = cut(found, limit)
    return RunPage(runs=page, next=None if last is None else cursor.encode(ATTEMPTS, last.attempt))
