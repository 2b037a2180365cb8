"""Bodies of requests: read no further than the limit, whichever route they go to."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.types import Message, Receive

from service.api.problems import ProblemError


class LimitedBody:
    """What comes of a request's body. What a client announces is not trusted."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._seen = 0
        self._again: bytes | None = None

    def check_announced(self, request: Request) -> None:
        """
        Raises:
            ProblemError: when the body is announced to be larger than the limit.
        """
        announced = request.headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > self._limit:
            raise too_large(self._limit)

    async def receive(self) -> Message:
        """The next message, as ASGI has it.

        Raises:
            ProblemError: when it is more than the limit by now.
        """
        if self._again is not None:
            body, self._again = self._again, None
            return {"type": "http.request", "body": body, "more_body": False}
        message = await self._receive()
        self._seen += len(message.get("body", b""))
        if self._seen > self._limit:
            raise too_large(self._limit)
        return message

    async def peek(self) -> bytes:
        """The whole body, which whoever comes next reads once more."""
        parts = bytearray()
        more = True
        while more:
            message = await self.receive()
            parts += message.get("body", b"")
            more = message["type"] == "http.request" and message.get("more_body", False)
        self._again = bytes(parts)
        return self._again


def too_large(limit: int) -> ProblemError:
    return ProblemError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "body-too-large",
        f"the body is larger than {limit} bytes; send a smaller one or raise SHARDPROOF_BODY_LIMIT_BYTES",
    )
