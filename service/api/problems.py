"""Errors as problem documents (RFC 9457), for every way a request can fail.

``code`` is stable and made for programs, ``detail`` is made for people. ``type`` is the code as a URN.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response

from service.domain.errors import MatrixError, MatrixProblem
from service.domain.place import show_path
from service.store import StoreUnavailable
from service.store.records import UnknownRecord

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:shardproof:problem:"


class ErrorItem(BaseModel):
    """One thing that is wrong with the input. ``path`` leads to it; ``line`` and ``column`` count from 1."""

    code: str
    detail: str
    hint: str | None = None
    path: str | None = None
    line: int | None = None
    column: int | None = None


class Problem(BaseModel):
    """An error. ``errors`` is there when the input has several, or when it is known where they are."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    instance: str
    errors: list[ErrorItem] | None = None


class ProblemError(HTTPException):
    """A request that fails with this code."""

    def __init__(self, status: HTTPStatus, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, detail, headers)
        self.code = code


class ParameterError(Exception):
    """Parameters that are not valid: where each stands → what is wrong with it."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("; ".join(problems.values()))
        self.problems = problems


RETRY = {"Retry-After": "5"}
"""Seconds after which a database that is in trouble may answer again."""

CODES = {
    HTTPStatus.BAD_REQUEST: "malformed-request",
    HTTPStatus.NOT_FOUND: "not-found",
    HTTPStatus.METHOD_NOT_ALLOWED: "method-not-allowed",
}
"""Codes of the errors that the framework itself raises."""


def install(app: FastAPI) -> None:
    """Make every error of ``app`` a problem document, and say so in its OpenAPI description."""
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(ParameterError, _parameters)
    app.add_exception_handler(MatrixError, _matrix)
    app.add_exception_handler(UnknownRecord, _unknown)
    app.add_exception_handler(StoreUnavailable, _unavailable)
    app.add_exception_handler(Exception, _unforeseen)
    describe = app.openapi

    def describe_with_problems() -> dict[str, Any]:
        description = describe()
        description["components"]["schemas"].update(_schemas())
        return description

    app.openapi = describe_with_problems  # type: ignore[method-assign]


RESPONSES: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "A problem document (RFC 9457)",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
}
"""What a route declares of its errors."""


def problem_response(
    request: Request,
    status: int,
    code: str,
    detail: str,
    errors: list[ErrorItem] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The problem document as a response."""
    problem = Problem(
        type=TYPE_PREFIX + code,
        title=HTTPStatus(status).phrase,
        status=status,
        code=code,
        detail=detail,
        instance=request.url.path,
        errors=errors,
    )
    content = json.dumps(problem.model_dump(exclude_none=True))
    return Response(content, status, headers, MEDIA_TYPE)


def error_response(request: Request, error: ProblemError) -> Response:
    """The problem document of ``error``, for those who answer before a route is found."""
    return problem_response(request, error.status_code, error.code, error.detail, headers=error.headers)


def unavailable_response(request: Request, error: StoreUnavailable) -> Response:
    """The problem document of a database that is in trouble, likewise."""
    code = f"database-{error.trouble}"
    return problem_response(request, HTTPStatus.SERVICE_UNAVAILABLE, code, str(error), headers=RETRY)


def _schemas() -> dict[str, Any]:
    schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    return {**schema.pop("$defs"), "Problem": schema}


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    if isinstance(error, ProblemError):
        return error_response(request, error)
    details = {
        HTTPStatus.NOT_FOUND: f"there is nothing at {request.url.path}; see /docs for what there is",
        HTTPStatus.METHOD_NOT_ALLOWED: f"{request.method} cannot be used on {request.url.path}; see the Allow header",
    }
    code = CODES.get(status, "http-error")
    return problem_response(request, status, code, details.get(status, error.detail), headers=error.headers)


async def _validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    items = [
        ErrorItem(code=item["type"], detail=item["msg"], path=".".join(str(part) for part in item["loc"]))
        for item in error.errors()
    ]
    return _invalid(request, items)


async def _parameters(request: Request, error: Exception) -> Response:
    assert isinstance(error, ParameterError)
    return _invalid(
        request, [ErrorItem(code="unknown-parameter", detail=said, path=path) for path, said in error.problems.items()]
    )


def _invalid(request: Request, items: list[ErrorItem]) -> Response:
    detail = "the request has parameters that are not valid: " + ", ".join(str(item.path) for item in items)
    return problem_response(request, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-request", detail, items)


async def _matrix(request: Request, error: Exception) -> Response:
    assert isinstance(error, MatrixError)
    items = [_matrix_item(problem) for problem in error.problems]
    detail = f"the matrix has {len(items)} problem{'s' if len(items) != 1 else ''}; nothing was started"
    return problem_response(request, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-matrix", detail, items)


async def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, UnknownRecord)
    return problem_response(request, HTTPStatus.NOT_FOUND, f"unknown-{error.kind}", str(error))


async def _unavailable(request: Request, error: Exception) -> Response:
    assert isinstance(error, StoreUnavailable)
    return unavailable_response(request, error)


async def _unforeseen(request: Request, error: Exception) -> Response:
    detail = "an error inside the controller; its log has the traceback"
    return problem_response(request, HTTPStatus.INTERNAL_SERVER_ERROR, "internal-error", detail)


def _matrix_item(problem: MatrixProblem) -> ErrorItem:
    return ErrorItem(
        code=problem.code,
        detail=problem.message,
        hint=problem.hint,
        path=show_path(problem.path) or None,
        line=problem.place.line if problem.place else None,
        column=problem.place.column if problem.place else None,
    )
