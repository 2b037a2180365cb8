"""What is read over the API: every list that it has, found by its parameters, and reports."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI
from fastapi.routing import APIRoute
from httpx import AsyncClient

from service.domain.startup import NotMeasured
from service.reads.series import SERIES
from service.reads.shape import Sweep
from service.reads.upkeep import SCHEDULES, WEBHOOKS

LIMIT = "limit"
CURSORS = ("after", "before")
"""Parameters that go on behind a page: its ``next``."""

DEEPEST = 40
"""Pages, one behind the other, of one list."""

MOST = 100
REPORT = "/v1/sweeps/{sweep_id}/report"
ONE = "/v1/sweeps/{sweep_id}"


@dataclass(frozen=True)
class Asked:
    """A GET of the API. ``cursor`` names the parameter of a list; ``limit`` is the most that it gives at once."""

    path: str
    parameters: tuple[str, ...] = ()
    cursor: str | None = None
    limit: int = MOST

    def of(self, sweep: Sweep, chance: random.Random) -> str:
        """The path for this sweep, for some cell or run of it, or for something beside it."""
        cell_id, _, run_id = chance.choice(list(sweep.runs()))
        known = {"sweep_id": sweep.id, "cell_id": cell_id, "run_id": run_id}
        path = self.path
        for name in self.parameters:
            value = known[name] if name in known else chance.choice(BESIDE[self.path, name])
            path = path.replace(f"{{{name}}}", quote(value))
        return path


OF_SWEEPS = {"sweep_id", "cell_id", "run_id"}
BESIDE: dict[tuple[str, str], Sequence[str]] = {
    ("/v1/series/{series_id}/points", "series_id"): SERIES,
    ("/v1/schedules/{name}/fires", "name"): SCHEDULES,
    ("/v1/webhooks/{webhook_id}/deliveries", "webhook_id"): WEBHOOKS,
}
"""Path and parameter of a list of something that is beside sweeps → what was loaded of it."""


def lists(app: FastAPI) -> tuple[list[Asked], list[str]]:
    """Every list of the API, and the paths of those that are of something else than what was loaded."""
    found, others = [], []
    for route in app.routes:
        if isinstance(route, APIRoute) and "GET" in route.methods and route.path.startswith("/v1/"):
            asked = _list(route)
            if asked is not None and all(
                name in OF_SWEEPS or (asked.path, name) in BESIDE for name in asked.parameters
            ):
                found.append(asked)
            elif asked is not None:
                others.append(asked.path)
    return found, others


def _list(route: APIRoute) -> Asked | None:
    query = {field.name: field for field in route.dependant.query_params}
    if LIMIT not in query:
        return None
    most = [bound.le for bound in query[LIMIT].field_info.metadata if hasattr(bound, "le")]
    cursor = next((name for name in CURSORS if name in query), None)
    parameters = tuple(field.name for field in route.dependant.path_params)
    return Asked(route.path, parameters, cursor, most[0] if most else MOST)


async def answered(client: AsyncClient, path: str, parameters: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The answer and its size in bytes."""
    response = await client.get(path, params=parameters)
    if response.is_error:
        raise NotMeasured(f"GET {path} answers {response.status_code}: {response.text[:500]}")
    return dict(response.json()), len(response.content)


def taking_turns(sweeps: Sequence[Sweep], chance: random.Random) -> Iterator[Sweep]:
    """One of the largest, the one that runs, and any, for ever."""
    largest = [sweep for sweep in sweeps if sweep.whole]
    running = [sweep for sweep in sweeps if sweep.active]
    while True:
        yield from (chance.choice(largest), chance.choice(running), chance.choice(sweeps))
