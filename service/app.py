"""The controller's web application: API, pages and documentation in one."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import Depends, FastAPI
from fastapi_offline import FastAPIOffline
from starlette.staticfiles import StaticFiles

from service.api import (
    actions,
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
)
from service.api.controller import Controller
from service.api.guard import Guard
from service.api.parameters import refuse_unknown
from service.dashboard import actions as page_actions
from service.dashboard import login, routes
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
        dependencies=[Depends(refuse_unknown)],
        generate_unique_id_function=description.name,
    )
    app.state.settings = settings
    app.state.store = store
    app.state.controller = controller
    app.state.scheduler = Scheduler(store, controller.submit)
    app.state.metrics = Metrics(store, ClusterOccupancy())
    app.state.query_parameters = {}
    app.state.keyring = Keyring(store)
    app.add_middleware(Guard, settings=settings, store=store, keyring=app.state.keyring)
    problems.install(app)
    refusals.install(app)
    description.install(app)
    security.install(app)
    app.include_router(previews.router)
    app.include_router(sweeps.router)
    for resource in (cells, runs, streams, artifacts, exports, inventory, actions, schedules, keys, audit, series):
        app.include_router(resource.router)
    app.include_router(health.router)
    app.include_router(routes.router)
    app.include_router(page_actions.router)
    app.include_router(login.router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app
