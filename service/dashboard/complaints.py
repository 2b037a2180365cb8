"""What the API refuses, beside the field of a form that it is about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from service.api.problems import ProblemError
from service.domain.errors import MatrixError

Done = TypeVar("Done")

REFUSALS = (ValidationError, RequestValidationError, MatrixError, ProblemError)
"""What a form can be sent back for."""

_FIELDS = {"name-taken": "name"}
"""Codes that are about one field."""

_PLAIN = {"string_too_short": "this is missing", "missing": "this is missing"}
"""What is said shorter beside a field than in a list of errors."""


@dataclass(frozen=True)
class Complaints:
    """``fields``: by the name of a field, each a list of sentences. ``general``: about no field of the form."""

    status: HTTPStatus = HTTPStatus.OK
    fields: Mapping[str, list[str]] = field(default_factory=dict)
    general: tuple[str, ...] = ()

    def of(self, name: str) -> list[str]:
        return self.fields.get(name, [])


NONE = Complaints()


def attempt(action: Callable[[], Done]) -> Done | Complaints:
    """What ``action`` returns, or what was refused of it."""
    try:
        return action()
    except REFUSALS as error:
        return complaints(error)


def complaints(error: Exception) -> Complaints:
    """``error``, one of :data:`REFUSALS`, as it is shown in a form."""
    if isinstance(error, MatrixError):
        return Complaints(HTTPStatus.UNPROCESSABLE_ENTITY, {"matrix": [str(problem) for problem in error.problems]})
    if isinstance(error, ProblemError):
        return _problem(error)
    assert isinstance(error, ValidationError | RequestValidationError)
    found: dict[str, list[str]] = {}
    for item in error.errors():
        # Of what stands in a body the first part says so.
        where = [str(part) for part in item["loc"] if part != "body"]
        found.setdefault(where[0] if where else "", []).append(_PLAIN.get(item["type"], _sentence(item["msg"])))
    general = tuple(found.pop("", ()))
    return Complaints(HTTPStatus.UNPROCESSABLE_ENTITY, found, general)


def _problem(error: ProblemError) -> Complaints:
    name = _FIELDS.get(error.code)
    status = HTTPStatus(error.status_code)
    if name is None:
        return Complaints(status, general=(error.detail,))
    return Complaints(status, {name: [error.detail]})


def _sentence(said: str) -> str:
    return said.removeprefix("Value error, ")
