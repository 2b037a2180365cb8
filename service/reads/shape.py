"""How much there is to read, and how it is spread over sweeps. Pure: the same numbers give the same sweeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

BEGIN = datetime(2025, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Sweep:
    """``whole``: with evidence and settings of the size that real runs leave. ``events``: of each run."""

    number: int
    cells: tuple[str, ...]
    attempts: int
    events: int
    whole: bool = False
    active: bool = False

    @property
    def id(self) -> str:
        return f"{BEGIN + timedelta(hours=self.number):%Y%m%d-%H%M%S}-{self.number:06x}"

    @property
    def ended(self) -> datetime:
        return BEGIN + timedelta(hours=self.number, minutes=1)

    def runs(self) -> Iterator[tuple[str, int, str]]:
        """(cell id, attempt, run id)."""
        for cell_id in self.cells:
            for attempt in range(1, self.attempts + 1):
                yield cell_id, attempt, f"{self.id}-{cell_id}-{attempt:06x}"


@dataclass(frozen=True)
class Shape:
    """``small`` and ``large``: so many whole sweeps, of 4 and of 24 cells, spread among the others; one more runs.

    Where there are fewer others than these, some of them are left out.
    """

    runs: int
    cells_of_a_sweep: int = 25
    attempts: int = 2
    events_of_a_run: int = 3
    small: int = 20
    large: int = 20
    events_of_a_whole_run: int = 60

    SMALL, LARGE = 4, 24

    def sweeps(self) -> Iterator[Sweep]:
        """Oldest first."""
        number = 0
        whole = [self.SMALL] * self.small + [self.LARGE] * self.large
        many = max(1, (self.runs - sum(whole)) // (self.cells_of_a_sweep * self.attempts))
        every = max(1, many // (len(whole) or 1))
        for place in range(many):
            if place % every == 0 and whole:
                yield self._whole(number, whole.pop())
                number += 1
            yield Sweep(number, _names(self.cells_of_a_sweep), self.attempts, self.events_of_a_run)
            number += 1
        yield self._whole(number, self.LARGE, active=True)

    def _whole(self, number: int, cells: int, active: bool = False) -> Sweep:
        return Sweep(number, _names(cells), 1, self.events_of_a_whole_run, whole=True, active=active)


def _names(cells: int) -> tuple[str, ...]:
    return tuple(f"fef43f{place:06x}" for place in range(cells))
