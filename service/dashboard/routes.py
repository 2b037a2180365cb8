"""The pages. Their links are relative, so they work under any path prefix without being told of it."""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import APIRouter
from starlette.responses import HTMLResponse

from service.api.dependencies import StoreDependency
from service.api.principal import PrincipalDependency
from service.dashboard.render import render_list, render_sweep, render_table
from service.dashboard.view import SweepView, sweep_view
from service.domain.keys import Scope
from service.report import stored_report
from service.store import Store, repositories

PAGE = 50
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}

router = APIRouter(include_in_schema=False)


@router.get("/")
def list_sweeps(store: StoreDependency, principal: PrincipalDependency, before: str | None = None) -> HTMLResponse:
    """Sweeps, newest first."""
    with store.reading() as session:
        sweeps = repositories.list_sweeps(session, PAGE + 1, before)
    page = sweeps[:PAGE]
    return html(render_list(page, page[-1].id if len(sweeps) > PAGE else None, principal.csrf))


@router.get("/sweeps/{sweep_id}")
def show_sweep(sweep_id: str, store: StoreDependency, principal: PrincipalDependency) -> HTMLResponse:
    """One sweep."""
    return html(render_sweep(_view(store, sweep_id), principal.csrf, principal.scope.allows(Scope.SUBMIT)))


@router.get("/sweeps/{sweep_id}/table")
def show_table(sweep_id: str, store: StoreDependency) -> HTMLResponse:
    """The part of a sweep's page that changes, for the script to swap in."""
    return html(render_table(_view(store, sweep_id)))


def _view(store: Store, sweep_id: str) -> SweepView:
    with store.reading() as session:
        report = stored_report(session, sweep_id)
        live = repositories.latest_phases(session, sweep_id)
    return sweep_view(report, live, datetime.now(UTC))


def html(content: str, status: int = 200) -> HTMLResponse:
    """A page, with what keeps browsers from more than it needs."""
    return HTMLResponse(content, status, headers=HEADERS)
