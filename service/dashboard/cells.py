"""The page of a cell: why it has its verdict, what the run found out, and the files that it left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter
from sqlalchemy.orm import Session
from starlette.responses import HTMLResponse

from service.api.dependencies import SettingsDependency, StoreDependency
from service.artifacts import artifacts_of
from service.dashboard.cell_view import CellView, cell_view
from service.dashboard.files import FilesOfArm, files_by_arm
from service.dashboard.lines import TIMES, baselines_of, figures_in, glance_of, lines_of
from service.dashboard.pages import FrameDependency, html
from service.dashboard.render import render
from service.report import build_report
from service.settings import Settings
from service.store import Store, repositories
from service.store.glance_records import CellGlance
from service.store.records import CellRecord, LivePhase, RunRecord, RunSummary, SweepRecord
from service.store.repositories import glances, pages, series, series_points
from service.store.series_records import OutcomeRecord, PointRecord
from workers.artifacts import ArtifactsError

MOST_FILES = 500
MOST_ATTEMPTS = 100

router = APIRouter(prefix="/sweeps/{sweep_id}/cells/{cell_id}", include_in_schema=False)


@dataclass(frozen=True)
class _Stored:
    after: int
    sweep: SweepRecord
    cell: CellRecord
    original: CellRecord
    run: RunRecord | None
    attempts: Sequence[RunSummary]
    live: Sequence[LivePhase]
    points: Mapping[str, Sequence[PointRecord]]
    series_id: str | None
    before: OutcomeRecord | None


@router.get("")
def show_cell(
    sweep_id: str, cell_id: str, store: StoreDependency, settings: SettingsDependency, frame: FrameDependency
) -> HTMLResponse:
    """One cell."""
    return html(render("cell.html", frame, **_context(_stored(store, sweep_id, cell_id), settings)))


@router.get("/table")
def show_table(
    sweep_id: str, cell_id: str, store: StoreDependency, settings: SettingsDependency, frame: FrameDependency
) -> HTMLResponse:
    """The part of a cell's page that changes, for the script to swap in."""
    # It is shown one level up.
    above = replace(frame, up=frame.up.removesuffix("../"))
    return html(render("_cell_live.html", above, **_context(_stored(store, sweep_id, cell_id), settings)))


def _stored(store: Store, sweep_id: str, cell_id: str) -> _Stored:
    with store.reading() as session:
        sweep = repositories.get_sweep(session, sweep_id)
        cell = repositories.get_cell(session, sweep_id, cell_id)
        original = cell if cell.duplicate_of is None else repositories.get_cell(session, sweep_id, cell.duplicate_of)
        series_id = series.series_of_cell(session, sweep_id, cell_id)
        return _Stored(
            after=glances.newest_event(session, sweep_id),
            sweep=sweep,
            cell=cell,
            original=original,
            run=pages.latest_run(session, sweep_id, original.id),
            attempts=pages.page_of_attempts(session, sweep_id, original.id, 0, MOST_ATTEMPTS),
            points=series_points.points_of_sweep(session, sweep_id, TIMES),
            series_id=series_id,
            before=None if series_id is None else _before(session, series_id, original),
            live=[] if cell.state.ended else repositories.latest_phases(session, sweep_id),
        )


def _before(session: Session, series_id: str, cell: CellRecord) -> OutcomeRecord | None:
    """What became of the series last before this cell was run."""
    if cell.started_at is None:
        return None
    return next(iter(series.outcomes_of(session, series_id, 1, before=cell.started_at)), None)


def _context(stored: _Stored, settings: Settings) -> dict[str, Any]:
    (cell,) = build_report(stored.sweep, [stored.cell], [] if stored.run is None else [stored.run])["cells"]
    view = _view(cell, stored)
    files, unreachable = _files(stored.run, settings)
    return {
        "page": view,
        "sweep": stored.sweep,
        "series_id": stored.series_id,
        "before": stored.before,
        "after": stored.after,
        "run_id": None if stored.run is None else stored.run.id,
        "attempts": stored.attempts,
        "files": files,
        "unreachable": unreachable,
    }


def _view(cell: dict[str, Any], stored: _Stored) -> CellView:
    glance = glance_of(cell, stored.sweep.id)
    (line,) = lines_of(
        [glance],
        {cell["id"]: figures_in(cell)},
        _link,
        baselines=baselines_of(stored.points),
        live=stored.live,
        now=datetime.now(UTC),
        others={stored.original.id: stored.original.name},
    )
    return cell_view(line, cell)


def _link(cell: CellGlance) -> str:
    return quote(cell.id, safe="")


def _files(run: RunRecord | None, settings: Settings) -> tuple[list[FilesOfArm], str]:
    """What the arms left, and why it cannot be listed. A store of files that does not answer costs no page."""
    if run is None:
        return [], ""
    try:
        return files_by_arm(run.id, list(islice(artifacts_of(run, settings), MOST_FILES))), ""
    except ArtifactsError as error:
        return [], str(error)
