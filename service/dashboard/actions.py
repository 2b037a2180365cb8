"""What a page can have done to a sweep or a cell. The guard has looked at key, origin and form token before."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import quote

from fastapi import APIRouter
from starlette.responses import RedirectResponse

from service.api.actions import clone
from service.api.dependencies import ControllerDependency, SettingsDependency, StoreDependency

router = APIRouter(include_in_schema=False)


@router.post("/sweeps/{sweep_id}/cancel")
def cancel_sweep(sweep_id: str, controller: ControllerDependency) -> RedirectResponse:
    """End a sweep before it is done."""
    controller.cancel(sweep_id)
    return _back(sweep_id)


@router.post("/sweeps/{sweep_id}/rerun")
def rerun_sweep(sweep_id: str, controller: ControllerDependency) -> RedirectResponse:
    """Run again what is not ok."""
    controller.rerun(sweep_id)
    return _back(sweep_id)


@router.post("/sweeps/{sweep_id}/clone")
def clone_sweep(
    sweep_id: str, store: StoreDependency, settings: SettingsDependency, controller: ControllerDependency
) -> RedirectResponse:
    """Submit the matrix of a sweep once more, and show the new one."""
    return _back(clone(sweep_id, store, settings, controller))


@router.post("/sweeps/{sweep_id}/cells/{cell_id}/cancel")
def cancel_cell(sweep_id: str, cell_id: str, controller: ControllerDependency) -> RedirectResponse:
    """End a cell before it is done."""
    controller.cancel(sweep_id, cell_id)
    return _back(cell_id)


@router.post("/sweeps/{sweep_id}/cells/{cell_id}/rerun")
def rerun_cell(sweep_id: str, cell_id: str, controller: ControllerDependency) -> RedirectResponse:
    """Run a cell again, whatever its verdict."""
    controller.rerun(sweep_id, [cell_id])
    return _back(cell_id)


def _back(name: str) -> RedirectResponse:
    """To the page of a sweep or a cell, relative as all links of pages are."""
    return RedirectResponse(f"../{quote(name, safe='')}", HTTPStatus.SEE_OTHER)
