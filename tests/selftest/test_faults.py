"""Each fault changes what it says, where it says, on the rank it says, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from workers.protocol import Fault
from workers.selftest import faults
from workers.selftest.catalogue import RANKS
from workers.selftest.faults import COLLECTIVE_FAULTS, RESIDUAL_FAULTS, STATE

ROWS, HIDDEN = 6, 32


def parts() -> list[torch.Tensor]:
    return list(torch.randn(RANKS * ROWS, HIDDEN, generator=torch.Generator().manual_seed(3)).chunk(RANKS))


@pytest.fixture(autouse=True)
def state() -> Iterator[None]:
    STATE.rank, STATE.gather = 1, lambda value: parts()
    STATE.set(None)
    yield
    STATE.rank, STATE.gather = 0, None
    STATE.set(None)


def after_two_steps(site: int) -> torch.Tensor:
    """What the fault that is on makes of rank 1's part, in the second step."""
    faults.residual(torch.ones(ROWS, HIDDEN), site)
    STATE.begin_step()
    return faults.residual(parts()[1], site)


def test_without_a_fault_nothing_changes() -> None:
    value = parts()[1]
    assert faults.residual(value, 0) is value
    assert faults.collective("reduce_scatter", value, lambda tensor: tensor) is value


@pytest.mark.parametrize("kind", RESIDUAL_FAULTS)
def test_a_residual_fault_changes_its_site_alone(kind: str) -> None:
    rank = 0 if kind == "slice-of-last-rank" else 1
    STATE.rank = rank
    STATE.gather = lambda value: parts()
    STATE.set(Fault(kind=kind, site=2))
    faults.residual(torch.ones(ROWS, HIDDEN), 2)
    value = parts()[rank]
    assert not torch.equal(faults.residual(value, 2), value)
    assert torch.equal(faults.residual(value, 3), value)


@pytest.mark.parametrize(
    "kind", sorted(set(RESIDUAL_FAULTS) - {"slice-of-rank-0", "slice-of-last-rank", "ranks-rotated"})
)
def test_a_residual_fault_spares_the_other_ranks(kind: str) -> None:
    STATE.set(Fault(kind=kind, site=1, rank=0))
    assert torch.equal(after_two_steps(1), parts()[1])
    STATE.set(Fault(kind=kind, site=1, rank=1))
    assert not torch.equal(after_two_steps(1), parts()[1])


@pytest.mark.parametrize("name", ["reduce_scatter", "all_gather"])
def test_a_collective_fault_changes_the_call_it_names(name: str) -> None:
    value = torch.randn(RANKS * ROWS, HIDDEN, generator=torch.Generator().manual_seed(5))
    rights: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "reduce_scatter": lambda tensor: tensor[ROWS:] * 3,
        "all_gather": lambda tensor: torch.cat([tensor * 2, tensor]),
    }
    right = rights[name]
    for kind in COLLECTIVE_FAULTS[name]:
        STATE.set(Fault(kind=kind, site=1, rank=1))
        faults.collective(name, torch.ones_like(value), right)
        faults.collective(name, torch.ones_like(value), right)
        STATE.begin_step()
        assert torch.equal(faults.collective(name, value, right), right(value)), kind
        assert not torch.equal(faults.collective(name, value, right), right(value)), kind


def test_a_reduction_in_place_gives_the_sum_in_the_memory_of_its_input() -> None:
    value = parts()[1]
    expected = value * 2
    STATE.set(Fault(kind="reduced-in-place"))
    result = faults.collective("all_reduce", value, lambda tensor: tensor * 2)
    assert torch.equal(result, expected)
    assert result.data_ptr() == value.data_ptr()
