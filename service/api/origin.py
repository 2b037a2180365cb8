"""Requests that a browser makes because a page of somebody else told it to, and paths that no database can hold."""

from __future__ import annotations

import hmac
import ipaddress
from http import HTTPStatus
from urllib.parse import parse_qs, unquote, urlsplit

from starlette.requests import Request

from service.api.bodies import LimitedBody
from service.api.problems import ProblemError

FORM = "application/x-www-form-urlencoded"
FIELD = "csrf"
HEADER = "x-csrf-token"


def check_text(request: Request) -> None:
    """
    Raises:
        ProblemError: when path or query hold a NUL, which PostgreSQL cannot store.
    """
    if "\0" in request.scope["path"] + unquote(request.scope["query_string"].decode("latin-1")):
        raise ProblemError(
            HTTPStatus.BAD_REQUEST, "malformed-request", "path and parameters cannot hold the character U+0000"
        )


def check_host(request: Request) -> None:
    """Without keys the service is on loopback, and a name from outside can only be one that was bent to point here.

    Raises:
        ProblemError: when the request is addressed to a name in a domain.
    """
    host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    if "." in host and not _is_address(host):
        raise ProblemError(
            HTTPStatus.FORBIDDEN,
            "foreign-host",
            f"without keys this answers on loopback only, not as {host}; make a key with `shardproof keys create`",
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens on ``host``."""
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def check_origin(request: Request) -> None:
    """
    Raises:
        ProblemError: when a page from elsewhere makes the browser change something here.
    """
    origin = request.headers.get("origin")
    if origin is None:
        foreign = request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
    else:
        foreign = urlsplit(origin).netloc != request.headers.get("host")
    if foreign:
        detail = f"a page of {origin or 'another site'} cannot change anything here; send an API key with the request"
        raise ProblemError(HTTPStatus.FORBIDDEN, "cross-site", detail)


async def check_form(request: Request, token: str, body: LimitedBody) -> None:
    """
    Raises:
        ProblemError: when a request of a session does not bring what only its pages know.
    """
    brought = request.headers.get(HEADER)
    if brought is None and request.headers.get("content-type", "").partition(";")[0].strip().lower() == FORM:
        form = parse_qs((await body.peek()).decode("utf-8", "replace"))
        brought = form.get(FIELD, [""])[0]
    if not hmac.compare_digest((brought or "").encode(), token.encode()):
        detail = f"this session's form token is missing or old ({FIELD}, or the header X-CSRF-Token); reload the page"
        raise ProblemError(HTTPStatus.FORBIDDEN, "csrf", detail)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
