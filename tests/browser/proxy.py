"""A proxy that serves an application below a path of its own, as teams have one in front."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import httpx
from api.server import serving
from fastapi import FastAPI
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

OWN = ("connection", "keep-alive", "transfer-encoding", "content-length")
"""Headers of one connection, which a proxy does not hand on."""

METHODS = ["GET", "HEAD", "POST", "PATCH", "DELETE"]


@contextmanager
def proxied(inner: str, prefix: str) -> Iterator[str]:
    """The address of a proxy; what is below ``prefix`` there is what ``inner`` has at its root."""
    app = FastAPI()

    async def hand_on(request: Request) -> Response:
        path = request.scope["raw_path"].decode()
        if not path.startswith(f"{prefix}/"):
            return PlainTextResponse("nothing here", 404)
        # One for each request: they live in the loop of the server.
        client = httpx.AsyncClient(base_url=inner, timeout=None)
        query = f"?{request.url.query}" if request.url.query else ""
        asked = client.build_request(
            request.method,
            path.removeprefix(prefix) + query,
            headers=[(key, value) for key, value in request.headers.raw if key.decode() not in OWN],
            content=await request.body(),
        )
        answer = await client.send(asked, stream=True)
        response = StreamingResponse(_raw(answer), answer.status_code, background=BackgroundTask(client.aclose))
        kept = [(key.lower(), value) for key, value in answer.headers.raw if key.decode().lower() not in OWN]
        response.raw_headers = kept
        return response

    app.add_api_route("/{path:path}", hand_on, methods=METHODS, include_in_schema=False)
    with serving(app) as url:
        yield url


async def _raw(answer: httpx.Response) -> AsyncIterator[bytes]:
    async for part in answer.aiter_raw():
        yield part
