"""The OpenAPI description in full: each operation with its errors by code, and an example of its answer."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from service.api.examples import ANSWERS, BODIES
from service.api.failures import FAILURES, by_status, codes_of
from service.api.problems import MEDIA_TYPE, TYPE_PREFIX

Json = dict[str, Any]

_METHODS = ("get", "post", "put", "patch", "delete")


def name(route: APIRoute) -> str:
    """Operations are called as their handlers: clients that are generated get short names."""
    return route.name


def install(app: FastAPI) -> None:
    """Complete what ``app`` says of itself."""
    describe = app.openapi

    def describe_in_full() -> Json:
        description = describe()
        for path, operation in operations(description):
            _add_failures(path, operation)
            _add_examples(operation)
        return description

    app.openapi = describe_in_full  # type: ignore[method-assign]


def operations(description: Json) -> Iterator[tuple[str, Json]]:
    """(path, operation) of each operation of an OpenAPI description."""
    for path, item in description["paths"].items():
        yield from ((path, operation) for method, operation in item.items() if method in _METHODS)


def _add_failures(path: str, operation: Json) -> None:
    for status, codes in by_status(codes_of(operation)).items():
        operation["responses"][str(int(status))] = {
            "description": "; ".join(f"`{code}`: {FAILURES[code].when}" for code in codes),
            "content": {
                MEDIA_TYPE: {
                    "schema": {"$ref": "#/components/schemas/Problem"},
                    "examples": {code: {"value": _problem(code, status, path)} for code in codes},
                }
            },
        }


def _problem(code: str, status: HTTPStatus, path: str) -> Json:
    return {
        "type": TYPE_PREFIX + code,
        "title": status.phrase,
        "status": int(status),
        "code": code,
        "detail": FAILURES[code].detail,
        "instance": path,
    }


def _add_examples(operation: Json) -> None:
    which = operation["operationId"]
    for status, response in operation["responses"].items():
        if status.startswith("2") and which in ANSWERS:
            for media_type, content in response.get("content", {}).items():
                content["example"] = _of(ANSWERS[which], media_type)
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        if which in BODIES:
            content["example"] = _of(BODIES[which], media_type)


def _of(example: Any, media_type: str) -> Any:
    """Where an operation knows several forms, its example is one of each."""
    return example.by_media_type[media_type] if hasattr(example, "by_media_type") else example
