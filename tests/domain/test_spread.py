"""Where ranks find room, held against every way there is to place them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from service.domain.spread import Machine, Spread, spread

SMALL = st.integers(min_value=0, max_value=4)
MACHINES = st.lists(st.builds(Machine, cpus=SMALL, gpus=SMALL), max_size=4)
RANKS = st.integers(min_value=1, max_value=16)


def _has_room(machine: Machine, ranks: int, on_gpus: bool) -> bool:
    return machine.cpus >= 1 and machine.gpus >= ranks if on_gpus else machine.cpus >= ranks


def _ways(ranks: int, machines: Sequence[Machine], on_gpus: bool) -> list[Spread]:
    """All that vLLM would do and that there is room for, the fewest machines first."""
    every = [Spread(number, ranks // number) for number in range(1, len(machines) + 1) if ranks % number == 0]
    return [way for way in every if sum(_has_room(machine, way.ranks, on_gpus) for machine in machines) >= way.machines]


@given(RANKS, MACHINES, st.booleans())
def test_it_is_the_fewest_machines_that_have_room(ranks: int, machines: list[Machine], on_gpus: bool) -> None:
    ways = _ways(ranks, machines, on_gpus)
    assert spread(ranks, machines, on_gpus) == (ways[0] if ways else None)


@given(RANKS, MACHINES, st.booleans())
def test_every_rank_has_a_place_and_every_machine_equally_many(
    ranks: int, machines: list[Machine], on_gpus: bool
) -> None:
    found = spread(ranks, machines, on_gpus)
    if found is not None:
        assert found.machines * found.ranks == ranks


@given(RANKS, MACHINES, st.booleans(), st.builds(Machine, cpus=SMALL, gpus=SMALL))
def test_a_machine_more_never_takes_room_away(
    ranks: int, machines: list[Machine], on_gpus: bool, more: Machine
) -> None:
    before, after = spread(ranks, machines, on_gpus), spread(ranks, [*machines, more], on_gpus)
    if before is not None:
        assert after is not None
        assert after.machines <= before.machines


def test_what_fits_one_machine_stays_on_one() -> None:
    machines = [Machine(64, 4), Machine(64, 8), Machine(64, 0)]
    assert spread(8, machines, on_gpus=True) == Spread(1, 8)
    assert spread(4, machines, on_gpus=True) == Spread(1, 4)


def test_nine_ranks_find_no_equal_parts_and_eight_find_them() -> None:
    pair = [Machine(8, 4), Machine(8, 4)]
    assert spread(9, [*pair, Machine(8, 1)], on_gpus=True) is None
    assert spread(8, pair, on_gpus=True) == Spread(2, 4)
    assert spread(6, [*pair, Machine(8, 2)], on_gpus=True) == Spread(2, 3), "three machines would do, two do as well"


def test_a_core_is_needed_beside_gpus() -> None:
    assert spread(1, [Machine(0, 8)], on_gpus=True) is None
    assert spread(2, [Machine(0, 8), Machine(1, 1)], on_gpus=True) is None


def test_without_gpus_a_slot_is_a_core() -> None:
    assert spread(2, [Machine(1, 8), Machine(1, 0)], on_gpus=False) == Spread(2, 1)
    assert spread(3, [Machine(1, 8), Machine(1, 0)], on_gpus=False) is None
    assert spread(1, [], on_gpus=False) is None
