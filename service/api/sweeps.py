"""Sweeps: submit, list, look at, and read their reports and events."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from service.api.dependencies import DOCUMENT_BODY, ControllerDependency, DocumentDependency, StoreDependency
from service.api.idempotency import OnceDependency
from service.api.principal import PrincipalDependency
from service.api.problems import RESPONSES
from service.api.schemas import Cell, Created, EventPage, Phase, Sweep, SweepPage
from service.report_text import stored_report_text
from service.store import repositories
from service.store.records import CellRecord, LivePhase

router = APIRouter(prefix="/v1/sweeps", tags=["sweeps"], responses=RESPONSES)


@router.post("", status_code=HTTPStatus.CREATED, openapi_extra=DOCUMENT_BODY)
def submit_sweep(
    request: Request,
    response: Response,
    document: DocumentDependency,
    controller: ControllerDependency,
    once: OnceDependency,
    principal: PrincipalDependency,
    priority: Annotated[int, Query(ge=-100, le=100, description="Sweeps of a higher one come first")] = 0,
    max_parallel: Annotated[
        int | None, Query(ge=1, le=10_000, description="So many of its runs at once, at most")
    ] = None,
) -> Created:
    """Submit a matrix, as JSON or YAML. Its sweep is queued at once; Location is where to watch it."""

    def submit(new: str | None) -> str:
        return controller.submit(
            document, priority=priority, max_parallel=max_parallel, key_id=principal.key_id, sweep_id=new
        )

    sweep_id = once.sweep(submit)
    path = request.app.url_path_for("get_sweep", sweep_id=sweep_id)
    response.headers["Location"] = request.scope.get("root_path", "") + path
    return Created(id=sweep_id)


@router.get("")
def list_sweeps(
    store: StoreDependency,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    before: Annotated[str | None, Query(description="Only sweeps older than this one: `next` of a page")] = None,
) -> SweepPage:
    """Sweeps, newest first."""
    with store.reading() as session:
        sweeps = repositories.list_sweeps(session, limit + 1, before)
    page = sweeps[:limit]
    return SweepPage(sweeps=page, next=page[-1].id if len(sweeps) > limit else None)


@router.get("/{sweep_id}")
def get_sweep(sweep_id: str, store: StoreDependency) -> Sweep:
    """How far a sweep is: each cell's state and verdict, and what the ranks of running cells do."""
    with store.reading() as session:
        sweep = repositories.get_sweep(session, sweep_id)
        cells = repositories.cells_of(session, sweep_id)
        phases = repositories.latest_phases(session, sweep_id)
    return Sweep(
        id=sweep.id,
        name=sweep.name,
        created_at=sweep.created_at,
        ended_at=sweep.ended_at,
        state=sweep.state,
        cells=[_cell(cell, phases) for cell in cells],
    )


@router.get("/{sweep_id}/report", response_model=dict[str, Any])
def get_report(sweep_id: str, store: StoreDependency) -> Response:
    """The report, `shardproof.report/1`, as far as the sweep has come."""
    with store.reading() as session:
        text = stored_report_text(session, sweep_id)
    # As it is: the framework would look at every value once more.
    return Response(text, media_type="application/json")


@router.get("/{sweep_id}/events")
def list_events(
    sweep_id: str,
    store: StoreDependency,
    after: Annotated[
        int, Query(ge=0, le=2**63 - 1, description="Only events newer than this one: `next` of a page")
    ] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 500,
) -> EventPage:
    """What happened, oldest first."""
    with store.reading() as session:
        repositories.get_sweep(session, sweep_id)
        events = repositories.events_after(session, sweep_id, after, limit)
    return EventPage(events=events, next=events[-1].id if events else after)


def _cell(cell: CellRecord, phases: list[LivePhase]) -> Cell:
    return Cell(
        id=cell.id,
        name=cell.name,
        state=cell.state,
        verdict=cell.verdict,
        ok=cell.ok,
        duplicate_of=cell.duplicate_of,
        phases=[
            Phase(arm=phase.arm, rank=phase.rank, name=phase.name, at=phase.at)
            for phase in phases
            if phase.cell_id == cell.id
        ],
    )
