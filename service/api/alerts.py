"""What happened, for those who read it elsewhere: a feed, and a comment on a sweep."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from service.alerts.feed import MEDIA_TYPE as ATOM
from service.alerts.feed import feed
from service.alerts.links import Links
from service.alerts.of_notices import alert, told_of_sweep
from service.api.dependencies import SettingsDependency, StoreDependency
from service.api.problems import RESPONSES
from service.domain.alerts import TOLD
from service.domain.comments import comment
from service.report import stored_report
from service.settings import Settings
from service.store.repositories import series_notices

MARKDOWN = "text/markdown"
SAFE = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}

router = APIRouter(tags=["alerts"], responses=RESPONSES)


def _text(media_type: str, what: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"description": what, "content": {media_type: {"schema": {"type": "string"}}}}}


@router.get("/feed.atom", response_class=Response, responses=_text(ATOM, "The feed"))
def read_feed(
    request: Request,
    store: StoreDependency,
    settings: SettingsDependency,
    limit: Annotated[int, Query(ge=1, le=100, description="Entries")] = 50,
) -> Response:
    """What people should hear of, newest first, as an Atom feed. A feed reader may send the key as a password."""
    base = _base(request, settings)
    with store.reading() as session:
        notices = series_notices.notices(session, limit, kinds=TOLD)
    content = feed([alert(notice, Links(base)) for notice in notices], base)
    return Response(content, headers=SAFE, media_type=ATOM)


@router.get(
    "/v1/sweeps/{sweep_id}/comment.md", response_class=Response, responses=_text(MARKDOWN, "The comment, in Markdown")
)
def get_comment(sweep_id: str, request: Request, store: StoreDependency, settings: SettingsDependency) -> Response:
    """A sweep as a comment on a pull request: how it came out, what is not as it should be, and what changed."""
    links = Links(_base(request, settings))
    with store.reading() as session:
        report = stored_report(session, sweep_id)
        told = told_of_sweep(session, sweep_id, links)
    return Response(comment(report, told, links.sweep(sweep_id)), headers=SAFE, media_type=MARKDOWN)


def _base(request: Request, settings: Settings) -> str:
    """What the operator says; else as whoever asks reached it."""
    return settings.public_url or str(request.base_url).rstrip("/")
