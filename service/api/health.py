"""Whether the controller can work."""

from __future__ import annotations

from fastapi import APIRouter

from service.api.dependencies import StoreDependency
from service.api.problems import RESPONSES
from service.api.schemas import Health
from service.store import repositories

router = APIRouter(tags=["health"], responses=RESPONSES)


@router.get("/healthz")
def check_health(store: StoreDependency) -> Health:
    """Answers `ok` when the database can be read."""
    with store.reading() as session:
        repositories.list_sweeps(session, limit=1)
    return Health(status="ok")
