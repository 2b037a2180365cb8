"""What is done to sweeps and cells that are there: cancelled, run again, submitted once more."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Body, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from service.admission import admit
from service.api.controller import Controller
from service.api.dependencies import ControllerDependency, SettingsDependency, StoreDependency
from service.api.problems import RESPONSES
from service.api.schemas import Created
from service.domain.document import from_tree
from service.settings import Settings
from service.store import Store, repositories

MOST_CELLS = 10_000

router = APIRouter(prefix="/v1", tags=["actions"], responses=RESPONSES)


CellId = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00]+$")]


class Accepted(BaseModel):
    """``id``: of the sweep, where its state can be seen."""

    id: str


class Rerun(BaseModel):
    """``cells``: ids of cells; without them, those that are not ok."""

    model_config = ConfigDict(extra="forbid", strict=True)

    cells: list[CellId] | None = Field(default=None, min_length=1, max_length=MOST_CELLS)


@router.post("/sweeps/{sweep_id}/cancel", status_code=HTTPStatus.ACCEPTED)
def cancel_sweep(sweep_id: str, controller: ControllerDependency) -> Accepted:
    """End a sweep before it is done. Its running cells are stopped; what has ended keeps its verdict."""
    controller.cancel(sweep_id)
    return Accepted(id=sweep_id)


@router.post("/cells/{sweep_id}/{cell_id}/cancel", status_code=HTTPStatus.ACCEPTED)
def cancel_cell(sweep_id: str, cell_id: str, controller: ControllerDependency) -> Accepted:
    """End a cell before it is done; the others of its sweep go on."""
    controller.cancel(sweep_id, cell_id)
    return Accepted(id=sweep_id)


@router.post("/sweeps/{sweep_id}/rerun", status_code=HTTPStatus.ACCEPTED)
def rerun_cells(
    sweep_id: str, controller: ControllerDependency, wanted: Annotated[Rerun | None, Body()] = None
) -> Accepted:
    """Run cells again that have ended: those that are not ok, or those that are named."""
    controller.rerun(sweep_id, None if wanted is None else wanted.cells)
    return Accepted(id=sweep_id)


@router.post("/cells/{sweep_id}/{cell_id}/rerun", status_code=HTTPStatus.ACCEPTED)
def rerun_cell(sweep_id: str, cell_id: str, controller: ControllerDependency) -> Accepted:
    """Run one cell again that has ended, whatever its verdict."""
    controller.rerun(sweep_id, [cell_id])
    return Accepted(id=sweep_id)


@router.post("/sweeps/{sweep_id}/clone", status_code=HTTPStatus.CREATED)
def clone_sweep(
    sweep_id: str,
    request: Request,
    response: Response,
    store: StoreDependency,
    settings: SettingsDependency,
    controller: ControllerDependency,
) -> Created:
    """Submit the matrix of a sweep once more. Location is where to watch the new one."""
    created = clone(sweep_id, store, settings, controller)
    path = request.app.url_path_for("get_sweep", sweep_id=created)
    response.headers["Location"] = request.scope.get("root_path", "") + path
    return Created(id=created)


def clone(sweep_id: str, store: Store, settings: Settings, controller: Controller) -> str:
    """Submit the matrix of a sweep once more, if it may be submitted from outside; the id of the new one.

    Raises:
        MatrixError: it sets what is not admitted, or cannot be run any more.
    """
    with store.reading() as session:
        matrix = repositories.get_sweep(session, sweep_id).matrix
    # It may be the operator's own, who may set more than is admitted from outside.
    admit(from_tree(matrix), settings)
    return controller.clone(sweep_id)
