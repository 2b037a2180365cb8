"""Stands before every route, those included that say nothing of keys: who asks, may he, how often; and it is noted.

A route needs a key with the scope that its method implies: ``read`` to look, ``submit`` to change. One that needs more
says so (``service.api.principal.ADMIN_ONLY``); the few that need none are listed here.
"""

from __future__ import annotations

import base64
import logging
from datetime import UTC, datetime
from http import HTTPStatus
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.bodies import LimitedBody
from service.api.limiter import Limiter
from service.api.origin import check_form, check_host, check_origin, check_text
from service.api.principal import check_scope
from service.api.problems import ProblemError, error_response, unavailable_response
from service.domain.keys import Scope as KeyScope
from service.keyring import LOCAL, Keyring, Principal, Refused
from service.settings import Settings
from service.store import Store, StoreUnavailable
from service.store.repositories import audit
from service.store.repositories.audit import NewAudit

logger = logging.getLogger(__name__)

SAFE = ("GET", "HEAD", "OPTIONS", "TRACE")
PUBLIC = ("/healthz", "/readyz", "/login")
FOR_READERS = ("/logout",)
"""Changes that concern nobody but who makes them."""

PUBLIC_FOLDERS = ("/static/",)
METRICS = "/metrics"
FEED = "/feed.atom"
"""Feed readers know of passwords alone, so here a key may come as one. Nowhere else: a browser that was given a
password sends it along with whatever another site's page asks for."""

COOKIE = "shardproof_session"
BEARER, BASIC = "bearer", "basic"

STRANGERS_PER_MINUTE = 120
"""Requests that an address may make without a key that opens something."""


class Guard:
    """ASGI middleware. Sets ``request.state.principal``."""

    def __init__(self, app: ASGIApp, settings: Settings, store: Store, keyring: Keyring) -> None:
        self._app = app
        self._settings = settings
        self._store = store
        self._keyring = keyring
        self._by_key = Limiter(settings.rate_limit_per_minute)
        self._by_address = Limiter(STRANGERS_PER_MINUTE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            # There are no web sockets here, and none gets past.
            await send({"type": "websocket.close"})
            return
        body = LimitedBody(receive, self._settings.body_limit_bytes)
        request = Request(scope, body.receive)
        try:
            check_text(request)
            body.check_announced(request)
            principal = await run_in_threadpool(self._admit, request)
            if principal is not None:
                request.state.principal = principal
                await self._check_change(request, principal, body)
        except ProblemError as error:
            await self._note_change(request, route_path(request), error.status_code)
            await _refusal(request, error)(scope, receive, send)
            return
        except StoreUnavailable as error:
            await unavailable_response(request, error)(scope, receive, send)
            return
        await self._pass_on(request, body.receive, send)

    def _admit(self, request: Request) -> Principal | None:
        """Who asks; ``None`` on a route that is open to everybody."""
        locked = self._keyring.locked
        if self._is_public(request):
            if locked and request.method not in SAFE:
                self._count(self._by_address, _address(request))
            return None
        if not locked:
            check_host(request)
            return LOCAL
        try:
            principal = self._identified(request)
        except Refused as refused:
            self._count(self._by_address, _address(request))
            raise _unauthorized(str(refused), _challenge(request)) from refused
        self._count(self._by_key, str(principal.key_id))
        return principal

    def _identified(self, request: Request) -> Principal:
        kind, value = _authorization(request)
        session = request.cookies.get(COOKIE)
        if kind == BEARER:
            return self._keyring.whose(value)
        if kind == BASIC and route_path(request) == FEED:
            return self._keyring.whose(_password(value))
        # A browser that was given a password for the feed brings it along to the pages.
        if kind and not (kind == BASIC and session is not None):
            raise Refused("the Authorization header has to be: Bearer KEY")
        if session is not None:
            return self._keyring.whose_session(session)
        raise Refused("this needs an API key: send it as Authorization: Bearer KEY, or log in at /login")

    async def _check_change(self, request: Request, principal: Principal, body: LimitedBody) -> None:
        if request.method in SAFE:
            check_scope(principal, KeyScope.READ)
            return
        check_scope(principal, KeyScope.READ if route_path(request) in FOR_READERS else KeyScope.SUBMIT)
        if principal.csrf is None and _authorization(request)[0] == BEARER:
            return
        # What follows a browser would send along wherever the page came from that asks it to.
        check_origin(request)
        if principal.csrf is not None:
            await check_form(request, principal.csrf, body)

    def _is_public(self, request: Request) -> bool:
        path = route_path(request)
        open_metrics = path == METRICS and not self._settings.metrics_need_key
        return path in PUBLIC or path.startswith(PUBLIC_FOLDERS) or open_metrics

    def _count(self, limiter: Limiter, who: str) -> None:
        wait_s = limiter.wait_s(who)
        if wait_s > 0:
            raise ProblemError(
                HTTPStatus.TOO_MANY_REQUESTS,
                "rate-limited",
                f"too many requests; wait {wait_s:.1f} s",
                headers={"Retry-After": str(int(wait_s) + 1)},
            )

    async def _pass_on(self, request: Request, receive: Receive, send: Send) -> None:
        if request.method in SAFE:
            await self._app(request.scope, receive, send)
            return
        status: int | None = None
        target = route_path(request)

        async def watch(message: Message) -> None:
            nonlocal status, target
            if message["type"] == "http.response.start":
                status = message["status"]
                # What was made says more than where it was asked for.
                target = Headers(raw=message["headers"]).get("location", target)
            await send(message)

        try:
            await self._app(request.scope, receive, watch)
        finally:
            await self._note_change(request, target, status)

    async def _note_change(self, request: Request, target: str, status: int | None) -> None:
        # Whoever logs in is known only afterwards.
        principal: Principal | None = getattr(request.state, "principal", None)
        if request.method not in SAFE and principal is not None:
            await run_in_threadpool(self._note, request, principal, target, status)

    def _note(self, request: Request, principal: Principal, target: str, status: int | None) -> None:
        entry = NewAudit(
            at=datetime.now(UTC),
            key_id=principal.key_id,
            actor=principal.name,
            action=request.method,
            target=target,
            status=status,
            client=_address(request),
        )
        try:
            with self._store.transaction() as session:
                audit.add_audit(session, entry)
        except Exception:
            # The answer is on its way; what happened is at least in the log.
            logger.exception("not written to the audit trail: %s", entry)


def route_path(request: Request) -> str:
    """The path without the prefix that the application is mounted under."""
    path: str = request.scope["path"]
    return path.removeprefix(request.scope.get("root_path", "")) or "/"


def _address(request: Request) -> str:
    return request.client.host if request.client is not None else "unknown"


def _authorization(request: Request) -> tuple[str, str]:
    """Scheme, in small letters, and what follows it; both empty where there is none."""
    kind, _, value = request.headers.get("authorization", "").partition(" ")
    return kind.lower(), value.strip()


def _password(value: str) -> str:
    """
    Raises:
        Refused: if it is no name and password (RFC 7617).
    """
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[2]
    except ValueError as error:
        raise Refused("the Authorization header has to be: Basic, with any name and a key as the password") from error


def _challenge(request: Request) -> str:
    return 'Basic realm="Shardproof: any name, a key as the password"' if route_path(request) == FEED else "Bearer"


def _unauthorized(detail: str, challenge: str) -> ProblemError:
    return ProblemError(HTTPStatus.UNAUTHORIZED, "key-needed", detail, headers={"WWW-Authenticate": challenge})


def _refusal(request: Request, error: ProblemError) -> Response:
    """People who open a page without a session are shown where to log in."""
    path = route_path(request)
    is_page = request.method == "GET" and "text/html" in request.headers.get("accept", "")
    if error.status_code == HTTPStatus.UNAUTHORIZED and is_page and not path.startswith("/v1/"):
        asked = path + (f"?{request.url.query}" if request.url.query else "")
        login = f"{request.scope.get('root_path', '')}/login?next={quote(asked, safe='/')}"
        return RedirectResponse(login, HTTPStatus.SEE_OTHER)
    return error_response(request, error)
