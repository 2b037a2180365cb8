"""Changes that two people may make at once: whoever has an old picture is told so (RFC 9110, If-Match)."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, Header

from service.api.problems import ProblemError
from service.domain.fingerprint import digest


def etag(*content: Any) -> str:
    """The entity tag of what somebody may edit."""
    return f'"{digest(list(content))}"'


def check_match(if_match: str, current: str) -> None:
    """
    Raises:
        ProblemError: when somebody changed it since.
    """
    if current not in [tag.strip() for tag in if_match.split(",")]:
        raise ProblemError(
            HTTPStatus.PRECONDITION_FAILED,
            "changed-since",
            "somebody changed this since you read it; read it again, and send its ETag as If-Match",
        )


def _if_match(if_match: Annotated[str | None, Header(description="The ETag that was read")] = None) -> str:
    if if_match is None:
        raise ProblemError(
            HTTPStatus.PRECONDITION_REQUIRED,
            "if-match-needed",
            "read this first, and send its ETag as If-Match, so that nobody else's change is overwritten",
        )
    return if_match


IfMatchDependency = Annotated[str, Depends(_if_match)]
