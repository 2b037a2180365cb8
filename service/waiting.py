"""What running arms are at, from the events of a sweep: what to say while nothing happens."""

from __future__ import annotations

from collections.abc import Mapping

from service.store.records import RUN_LOST, EventRecord
from workers.protocol import Role

Arm = tuple[str | None, str | None, Role | None]
"""Run, cell (``None``: shared) and arm."""


class Waiting:
    def __init__(self) -> None:
        self._phases: dict[Arm, dict[int | None, tuple[str, float]]] = {}

    def see(self, event: EventRecord, now: float) -> None:
        """``now``: when it came, on any clock that does not jump. What the event says of itself is wall time."""
        arm = (event.run_id, event.cell_id, event.arm)
        if event.kind == "arm-started":
            self._phases[arm] = {}
        elif event.kind == "arm-finished":
            self._phases.pop(arm, None)
        elif event.kind == RUN_LOST:
            self._phases = {other: phases for other, phases in self._phases.items() if other[0] != event.run_id}
        elif event.kind == "phase" and arm in self._phases:
            self._phases[arm][event.rank] = (str(event.data.get("name", "")), now)

    def lines(self, names: Mapping[str, str], now: float) -> list[str]:
        """A line for each running arm: its cell, and phase and seconds of each rank.

        ``names``: cells by id, those left out have ended. ``now``: as in ``see``. The main process waits for the ranks
        once there are any, so it is shown where it is the last that began something.
        """
        return [
            f"{names.get(cell or '', '')}  {arm}  {'; '.join(_doing(phases, now))}".strip()
            for (_, cell, arm), phases in self._phases.items()
            if cell is None or cell in names
        ]


def _doing(phases: Mapping[int | None, tuple[str, float]], now: float) -> list[str]:
    main = phases.get(None)
    newest = max((at for _, at in phases.values()), default=now)
    if main is not None and main[1] >= newest:
        phases = {None: main}
    shown = sorted((rank, *phase) for rank, phase in phases.items() if rank is not None)
    said = [f"rank {rank}  {name}  {max(now - at, 0.0):.0f} s" for rank, name, at in shown]
    if said or main is None:
        return said or ["starting"]
    return [f"main  {main[0]}  {max(now - main[1], 0.0):.0f} s"]
