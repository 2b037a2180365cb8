"""Over how many machines a run is spread: as few as have room for its ranks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """What a machine has in all, whether or not it is free."""

    cpus: int
    gpus: int


@dataclass(frozen=True)
class Spread:
    """``ranks`` on each of so many ``machines``."""

    machines: int
    ranks: int


def spread(ranks: int, machines: Iterable[Machine], on_gpus: bool) -> Spread | None:
    """Where ``ranks`` ranks find room: on the fewest machines that have a slot for each of them.

    vLLM wants equally many ranks on every machine. A slot is a GPU, or where there are none a core; beside GPUs the
    actor needs a core. ``None``: neither one machine nor several have so many.
    """
    slots = sorted((_slots(machine, on_gpus) for machine in machines), reverse=True)
    for number in range(1, min(ranks, len(slots)) + 1):
        if ranks % number == 0 and slots[number - 1] >= ranks // number:
            return Spread(number, ranks // number)
    return None


def _slots(machine: Machine, on_gpus: bool) -> int:
    if not on_gpus:
        return machine.cpus
    return machine.gpus if machine.cpus >= 1 else 0
