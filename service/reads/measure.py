"""Ask the API, in this process and without a network, and take the time of each answer."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient

from service.collector import spare_what_stays
from service.reads.questions import DEEPEST, LIMIT, ONE, REPORT, Asked, answered, lists, taking_turns
from service.reads.shape import Shape, Sweep

UNTIMED = 3
"""Answers before the clock counts: connections are made and statements prepared once."""


@dataclass
class Times:
    """Of one question: seconds and bytes of each answer."""

    what: str
    seconds: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    items: int = 0
    """That were listed, in all answers."""

    def row(self, database: str) -> dict[str, Any]:
        """Milliseconds, and kilobytes of the middle answer."""
        ordered = sorted(self.seconds)
        return {
            "database": database,
            "what": self.what,
            "answers": len(ordered),
            "p50_ms": round(1000 * statistics.median(ordered), 2),
            "p99_ms": round(1000 * _quantile(ordered, 0.99), 2),
            "kb": round(statistics.median(self.sizes) / 1000, 1),
        }


def _quantile(ordered: list[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


async def measure(app: FastAPI, shape: Shape, times: int, key: str) -> tuple[list[Times], list[str]]:
    """Every list, from its first page to those deep inside, and reports; ``times`` answers of each.

    Args:
        key: what is asked with, of scope admin.

    Returns:
        The times, and the paths of lists that had nothing in them: how fast that is, is no figure.
    """
    sweeps, chance = list(shape.sweeps()), random.Random(7)
    # What was made to ask with is the benchmark's: the collector of the application need not walk it at every turn.
    spare_what_stays()
    transport = ASGITransport(app, client=("127.0.0.1", 1))
    own = {"Authorization": f"Bearer {key}"}
    async with AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=120, headers=own) as client:
        found, others = lists(app)
        listed = [await _pages(client, asked, sweeps, times, chance) for asked in found]
        taken = [times_of for times_of in listed if times_of.items]
        others += [times_of.what for times_of in listed if not times_of.items]
        taken.append(await _singles(client, Times(ONE), _of(ONE, taking_turns(sweeps, chance), chance), times))
        for cells in (Shape.SMALL, Shape.LARGE):
            whole = [sweep for sweep in sweeps if sweep.whole and not sweep.active and len(sweep.cells) == cells]
            paths = _of(REPORT, (chance.choice(whole) for _ in range(times + UNTIMED)), chance)
            taken.append(await _singles(client, Times(f"{REPORT} of {cells} cells"), paths, times))
    return taken, others


async def _pages(client: AsyncClient, asked: Asked, sweeps: list[Sweep], times: int, chance: random.Random) -> Times:
    """Pages one behind the other, of one list after the other."""
    taken, turns = Times(asked.path), taking_turns(sweeps, chance)
    while len(taken.seconds) < times + UNTIMED:
        path = asked.of(next(turns), chance)
        cursor: str | int | None = None
        for _ in range(DEEPEST):
            page: dict[str, Any] = {LIMIT: asked.limit}
            if asked.cursor is not None and cursor is not None:
                page[asked.cursor] = cursor
            answer = await _timed(client, taken, path, page)
            before, cursor = cursor, answer.get("next")
            if cursor is None or cursor == before or len(taken.seconds) == times + UNTIMED:
                break
    return _counted(taken)


async def _singles(client: AsyncClient, taken: Times, paths: Iterator[str], times: int) -> Times:
    for path in islice(paths, times + UNTIMED):
        await _timed(client, taken, path)
    return _counted(taken)


def _of(path: str, sweeps: Iterator[Sweep], chance: random.Random) -> Iterator[str]:
    """The path for each of ``sweeps``."""
    asked = Asked(path, ("sweep_id",))
    return (asked.of(sweep, chance) for sweep in sweeps)


async def _timed(
    client: AsyncClient, taken: Times, path: str, parameters: dict[str, Any] | None = None
) -> dict[str, Any]:
    began = time.perf_counter()
    answer, size = await answered(client, path, parameters or {})
    taken.seconds.append(time.perf_counter() - began)
    taken.sizes.append(size)
    taken.items += sum(len(value) for value in answer.values() if isinstance(value, list))
    return answer


def _counted(taken: Times) -> Times:
    return Times(taken.what, taken.seconds[UNTIMED:], taken.sizes[UNTIMED:], taken.items)
