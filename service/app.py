"""The controller's web application: API, pages and documentation in one."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version

from fastapi import APIRouter, Depends, FastAPI
from fastapi_offline import FastAPIOffline
from starlette.routing import BaseRoute
from starlette.staticfiles import StaticFiles

from service.api import (
    actions,
    alerts,
    artifacts,
    audit,
    cells,
    description,
    exports,
    health,
    inventory,
    keys,
    previews,
    problems,
    refusals,
    runs,
    schedules,
    security,
    series,
    streams,
    sweeps,
    webhooks,
)
from service.api.controller import Controller
from service.api.guard import Guard
from service.api.parameters import refuse_unknown
from service.dashboard import actions as page_actions
from service.dashboard import (
    bokeh,
    compare_pages,
    errors,
    inventory_pages,
    key_pages,
    login,
    overview,
    schedule_pages,
    trend_actions,
    trend_pages,
)
from service.dashboard import cells as cell_pages
from service.dashboard import sweeps as sweep_pages
from service.dashboard.figures import Figures
from service.dashboard.render import STATIC
from service.dispatch.occupancy import ClusterOccupancy
from service.dispatch.scheduler import Scheduler
from service.keyring import Keyring
from service.metrics import Metrics
from service.settings import Settings
from service.store import Store


def create_app(settings: Settings, store: Store, controller: Controller) -> FastAPI:
    """The application on top of an open store and a running controller; it closes neither.

    Schedules can be fired by hand; they fire by themselves inside ``scheduling(app.state.scheduler)``.
    """
    app = FastAPIOffline(
        title="Shardproof",
        version=version("shardproof"),
        description="Does every vLLM configuration you serve still compile in time, run as asked, and agree across "
        "tensor-parallel ranks?",
    )
    app.state.settings = settings
    app.state.store = store
    app.state.controller = controller
    app.state.scheduler = Scheduler(store, controller.submit)
    app.state.metrics = Metrics(store, ClusterOccupancy())
    app.state.query_parameters = {}
    app.state.keyring = Keyring(store)
    app.state.figures = Figures()
    app.add_middleware(Guard, settings=settings, store=store, keyring=app.state.keyring)
    problems.install(app)
    errors.install(app)
    refusals.install(app)
    description.install(app)
    security.install(app)
    app.router.routes.extend(_routes())
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app


@cache
def _routes() -> list[BaseRoute]:
    """API and pages. A route holds nothing of an application, so that all of a process can have the same ones."""
    router = APIRouter(dependencies=[Depends(refuse_unknown)], generate_unique_id_function=description.name)
    router.include_router(previews.router)
    router.include_router(sweeps.router)
    for resource in (cells, runs, streams, artifacts, exports, inventory, actions, schedules, keys, audit, series):
        router.include_router(resource.router)
    for resource in (webhooks, alerts):
        router.include_router(resource.router)
    router.include_router(health.router)
    for pages in (overview, sweep_pages, cell_pages, page_actions, login):
        router.include_router(pages.router)
    for pages in (trend_pages, trend_actions, compare_pages, schedule_pages, inventory_pages, key_pages, bokeh):
        router.include_router(pages.router)
    return router.routes
