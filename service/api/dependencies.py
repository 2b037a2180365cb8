"""What handlers are given: the store, the controller, and the matrix in the request."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, Request

from service.admission import admit
from service.api.controller import Controller
from service.api.problems import ProblemError
from service.domain.document import Document, from_tree, parse
from service.settings import Settings
from service.store import Store

JSON_TYPES = ("application/json",)
YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml")


def _store(request: Request) -> Store:
    store: Store = request.app.state.store
    return store


def controller_of(request: Request) -> Controller:
    controller: Controller = request.app.state.controller
    return controller


def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


StoreDependency = Annotated[Store, Depends(_store)]
ControllerDependency = Annotated[Controller, Depends(controller_of)]
SettingsDependency = Annotated[Settings, Depends(_settings)]


async def _body(request: Request) -> bytes:
    return await request.body()


# Not a coroutine: parsing a large matrix takes a while, and in a thread it does not hold up other requests.
def _document(request: Request, body: Annotated[bytes, Depends(_body)], settings: SettingsDependency) -> Document:
    document = _parsed(request, body, settings)
    admit(document, settings)
    return document


def _parsed(request: Request, body: bytes, settings: Settings) -> Document:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type in JSON_TYPES:
        return from_tree(_json(_text(body)))
    if media_type in YAML_TYPES:
        return parse(_text(body), max_bytes=settings.body_limit_bytes)
    raise ProblemError(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        "unsupported-media-type",
        f"a matrix is sent as {' or '.join((JSON_TYPES[0], YAML_TYPES[0]))}, not as {media_type or 'untyped bytes'}; "
        "set the Content-Type header",
    )


def _json_body(request: Request, body: Annotated[bytes, Depends(_body)]) -> Any:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in JSON_TYPES:
        raise ProblemError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "unsupported-media-type",
            f"this is sent as {JSON_TYPES[0]}, not as {media_type or 'untyped bytes'}; set the Content-Type header",
        )
    return _json(_text(body))


DocumentDependency = Annotated[Document, Depends(_document)]
"""The matrix in the body, which sets nothing but what the operator allows."""

JsonDependency = Annotated[Any, Depends(_json_body)]
"""What the body holds as JSON."""

BodyDependency = Annotated[bytes, Depends(_body)]
"""The body as it came."""

_CONTENT = {"schema": {"type": "object", "description": "A matrix, as in a matrix file"}}

DOCUMENT_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {JSON_TYPES[0]: _CONTENT, YAML_TYPES[0]: _CONTENT}}
}
"""How OpenAPI describes the body that ``DocumentDependency`` reads."""


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProblemError(
            HTTPStatus.BAD_REQUEST, "not-utf-8", f"the body is not UTF-8 text (byte {error.start}); send it as UTF-8"
        ) from error


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ProblemError(HTTPStatus.BAD_REQUEST, "malformed-json", "the JSON is nested too deeply") from error
    except ValueError as error:
        raise ProblemError(HTTPStatus.BAD_REQUEST, "malformed-json", f"the body is not JSON: {error}") from error
