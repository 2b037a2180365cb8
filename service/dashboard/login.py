"""Logging in with an API key, so that a browser may look at the pages and change what its key may change."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from service.api.guard import COOKIE
from service.api.origin import check_origin
from service.api.principal import KeyringDependency
from service.dashboard.forms import form
from service.dashboard.frame import BARE
from service.dashboard.pages import html
from service.dashboard.render import render
from service.keyring import SESSION_LIFE, Refused

router = APIRouter(include_in_schema=False)

Form = Annotated[dict[str, str], Depends(form)]


@router.get("/login")
def show_login(next: str = "") -> HTMLResponse:
    """The form that asks for a key."""
    return _form(next, None)


@router.post("/login")
def log_in(request: Request, fields: Form, keyring: KeyringDependency) -> Response:
    """Let the browser in, and lead it to where it wanted to go."""
    check_origin(request)
    where = fields.get("next", "")
    key = fields.get("key", "").strip()
    try:
        token = keyring.open_session(key)
    except Refused as refused:
        return _form(where, str(refused), HTTPStatus.FORBIDDEN)
    request.state.principal = keyring.whose_session(token)
    prefix = request.scope.get("root_path", "")
    response = RedirectResponse(f"{prefix}{_own(where)}", HTTPStatus.SEE_OTHER)
    response.set_cookie(
        COOKIE,
        token,
        max_age=int(SESSION_LIFE.total_seconds()),
        path=f"{prefix}/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )
    return response


@router.post("/logout")
def log_out(request: Request, keyring: KeyringDependency) -> Response:
    """End the session."""
    keyring.end_session(request.cookies.get(COOKIE, ""))
    prefix = request.scope.get("root_path", "")
    response = RedirectResponse(f"{prefix}/login", HTTPStatus.SEE_OTHER)
    response.delete_cookie(COOKIE, path=f"{prefix}/")
    return response


def _form(where: str, refused: str | None, status: int = HTTPStatus.OK) -> HTMLResponse:
    """``where`` it leads to; ``refused`` is why the last key opened nothing."""
    return html(render("login.html", BARE, next=where, refused=refused), status)


def _own(where: str) -> str:
    """``where``, a path with or without a query, as one of this application's: it leads nowhere else."""
    path, mark, query = where.partition("?")
    return quote("/" + path.lstrip("/\\"), safe="/-._~") + mark + quote(query, safe="=&%+-._~")
