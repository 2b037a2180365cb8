"""What a handler of a page is given and gives back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

from fastapi import Depends, Request
from starlette.responses import HTMLResponse
from starlette.routing import BaseRoute

from service.api.guard import route_path
from service.api.principal import PrincipalDependency
from service.dashboard.frame import ENTRIES, Entry, Frame
from service.domain.keys import Scope

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


def frame_of(request: Request, principal: PrincipalDependency) -> Frame:
    """The frame of the page that was asked for."""
    path = route_path(request).removeprefix("/")
    entries = shown(request.app.routes)
    return Frame(
        up="../" * path.count("/") or "./",
        here=_here(path, entries),
        entries=entries,
        csrf=principal.csrf,
        may_change=principal.scope.allows(Scope.SUBMIT),
        who=principal.name,
    )


FrameDependency = Annotated[Frame, Depends(frame_of)]


def shown(routes: Iterable[BaseRoute]) -> tuple[Entry, ...]:
    """The entries that one of ``routes`` answers."""
    paths = {getattr(route, "path", None) for route in routes}
    return tuple(entry for entry in ENTRIES if f"/{entry.path}" in paths)


def html(content: str, status: int = 200) -> HTMLResponse:
    """A page, with what keeps browsers from more than it needs."""
    return HTMLResponse(content, status, headers=HEADERS)


def _here(path: str, entries: Sequence[Entry]) -> str:
    """The entry whose path ``path`` begins with; the overview where there is none."""
    return next((entry.path for entry in entries if entry.path and path.startswith(entry.path)), "")
