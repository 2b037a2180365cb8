"""What every process of an engine is at, from its events as they come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

RawEvent = Mapping[str, Any]
Rank = int | None
"""``None``: the engine's main process."""


class Phases:
    """Times are those of the events, on the machine's monotonic clock."""

    def __init__(self) -> None:
        self.ranks: set[int] = set()
        self.heard: float | None = None
        """When the newest event was sent."""
        self._open: dict[Rank, dict[str, float]] = {}
        self._last: dict[Rank, str] = {}
        self._changed: dict[Rank, float] = {}

    def note(self, events: Iterable[RawEvent]) -> None:
        for event in events:
            rank, kind = event.get("rank"), event["kind"]
            self.heard = max(event["t"], self.heard or event["t"])
            if kind == "rank" and isinstance(rank, int):
                self.ranks.add(rank)
            elif kind == "phase-begin":
                self._open.setdefault(rank, {})[event["name"]] = event["t"]
                self._last[rank] = event["name"]
                self._changed[rank] = event["t"]
            elif kind == "phase-end":
                self._open.get(rank, {}).pop(event["name"], None)
                self._changed[rank] = event["t"]

    def of(self, rank: Rank) -> str | None:
        """What ``rank`` is at; between its phases what the engine as a whole is at, or else its last phase."""
        begun = self._open.get(rank) or self._open.get(None)
        return next(reversed(begun)) if begun else self._last.get(rank)

    def since(self, rank: Rank) -> float | None:
        """When the innermost phase that ``rank`` has not ended began; ``None`` when it is in none of its own."""
        begun = self._open.get(rank)
        return begun[next(reversed(begun))] if begun else None

    def standing(self) -> dict[Rank, float]:
        """Since when nothing has moved, for each rank in a phase of its own.

        The main process counts while no rank is in a phase: what it is at otherwise is waiting for them. For it
        everything that a rank does is movement too.
        """
        inside = [rank for rank, begun in self._open.items() if begun and rank is not None]
        ranks: dict[Rank, float] = {rank: self._changed[rank] for rank in inside}
        if ranks or not self._open.get(None):
            return ranks
        return {None: max(self._changed.values())}
