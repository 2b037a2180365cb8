"""Whether the controller lives, whether it can work, and what it measures."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from service.api.dependencies import ControllerDependency, StoreDependency
from service.api.problems import RESPONSES, ProblemError
from service.api.schemas import Health
from service.metrics import Metrics
from service.store import repositories

router = APIRouter(tags=["health"], responses=RESPONSES)


@router.get("/healthz")
def check_health(store: StoreDependency) -> Health:
    """Answers `ok` when the database can be read."""
    with store.reading() as session:
        repositories.list_sweeps(session, limit=1)
    return Health(status="ok")


@router.get("/readyz")
def check_readiness(store: StoreDependency, controller: ControllerDependency) -> Health:
    """Answers `ok` when sweeps can start: the database can be read and Ray is there. Else 503, with the reason."""
    try:
        check_health(store)
    except Exception as error:
        raise _not_ready("the database cannot be read; see the controller's log") from error
    trouble = controller.trouble()
    if trouble is not None:
        raise _not_ready(trouble)
    return Health(status="ok")


@router.get("/metrics", response_class=PlainTextResponse)
def get_metrics(request: Request) -> Response:
    """Metrics in Prometheus' text format."""
    metrics: Metrics = request.app.state.metrics
    content, media_type = metrics.exposition(request.headers.get("accept", ""))
    return Response(content, media_type=media_type)


def _not_ready(why: str) -> ProblemError:
    return ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, "not-ready", why)
