"""Parameters that no route reads: a word that is misspelled is told, not passed over."""

from __future__ import annotations

from fastapi import Request
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from service.api.problems import ParameterError
from service.domain.nearest import nearest
from service.domain.wording import listing, show


def refuse_unknown(request: Request) -> None:
    """A dependency of every route.

    Raises:
        ParameterError: with each query parameter that the route does not describe.
    """
    known = _described(request)
    if known is None:
        return
    unknown = [name for name in dict.fromkeys(request.query_params) if name not in known]
    if unknown:
        raise ParameterError({f"query.{name}": _advice(name, known) for name in unknown})


def _described(request: Request) -> list[str] | None:
    """Names of the route's query parameters; ``None`` for a page, which OpenAPI does not describe."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute) or not route.include_in_schema:
        return None
    remembered: dict[tuple[str, str], list[str]] = request.app.state.query_parameters
    place = (route.path_format, request.method.lower())
    if place not in remembered:
        # The whole description takes a hundred times as long, and somebody waits for this answer.
        operation = get_openapi(title="", version="", routes=[route])["paths"][place[0]][place[1]]
        remembered[place] = [item["name"] for item in operation.get("parameters", []) if item["in"] == "query"]
    return remembered[place]


def _advice(name: str, known: list[str]) -> str:
    if not known:
        return f"there is no parameter {show(name)}; this takes none"
    return f"there is no parameter {show(name)}; the nearest is {nearest(name, known)}, all are {listing(known)}"
