"""What the domain refuses, as problem documents."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import FastAPI, Request
from starlette.responses import Response

from service.api.problems import problem_response
from service.domain.cursor import BadCursor
from service.domain.lifecycle import InvalidTransition
from workers.artifacts import ArtifactsError


def install(app: FastAPI) -> None:
    """A step that the lifecycle does not have is a conflict; a text that is no cursor is wrong input.

    A place for artifacts that does not answer may do so later.
    """
    app.add_exception_handler(BadCursor, _cursor)
    app.add_exception_handler(InvalidTransition, _state)
    app.add_exception_handler(ArtifactsError, _artifacts)


async def _cursor(request: Request, error: Exception) -> Response:
    return problem_response(request, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-cursor", str(error))


async def _state(request: Request, error: Exception) -> Response:
    return problem_response(request, HTTPStatus.CONFLICT, "wrong-state", str(error))


async def _artifacts(request: Request, error: Exception) -> Response:
    return problem_response(request, HTTPStatus.SERVICE_UNAVAILABLE, "artifacts-away", str(error))
