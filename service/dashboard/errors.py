"""Errors as pages, for people who followed a link. Programs are answered with problem documents."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import cast

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response

from service.api.guard import route_path
from service.dashboard.pages import frame_of, html
from service.dashboard.render import render
from service.store.records import UnknownRecord

Handler = Callable[[Request, Exception], Awaitable[Response]]

SHOWN = (HTTPException, UnknownRecord)
"""What is shown as a page: that something is not there, or may not be."""


def install(app: FastAPI) -> None:
    """Show errors of ``app`` as pages to browsers. Its problem documents have been installed before."""
    for kind in SHOWN:
        app.add_exception_handler(kind, _as_page(cast(Handler, app.exception_handlers[kind])))


def _as_page(handler: Handler) -> Handler:
    async def show(request: Request, error: Exception) -> Response:
        response = await handler(request, error)
        principal = getattr(request.state, "principal", None)
        if principal is None or not _is_page(request):
            return response
        problem = json.loads(bytes(response.body))
        frame = frame_of(request, principal)
        return html(await run_in_threadpool(render, "error.html", frame, problem=problem), response.status_code)

    return show


def _is_page(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "") and not route_path(request).startswith("/v1/")
