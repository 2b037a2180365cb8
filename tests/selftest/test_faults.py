"""Each fault changes what it says, where it says, on the rank it says, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from workers.protocol import ROUNDING, Fault
from workers.selftest import faults
from workers.selftest.catalogue import RANKS, SITES, catalogue, fault_plan, healthy_plans
from workers.selftest.faults import COLLECTIVE_FAULTS, RESIDUAL_FAULTS, STATE

ROWS, HIDDEN = 6, 32
NEEDS_THE_STEP_BEFORE = "stale-buffer"


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


@pytest.mark.parametrize("name", COLLECTIVE_FAULTS)
def test_a_collective_fault_changes_the_call_it_names(name: str) -> None:
    value = torch.randn(RANKS * ROWS, HIDDEN, generator=torch.Generator().manual_seed(5))
    right = {
        "reduce_scatter": lambda tensor: tensor[ROWS:] * 3,
        "all_gather": lambda tensor: torch.cat([tensor * 2, tensor]),
        "all_reduce": lambda tensor: tensor * 2,
    }[name]
    for kind in COLLECTIVE_FAULTS[name]:
        STATE.set(Fault(kind=kind, site=1, rank=1))
        faults.collective(name, torch.ones_like(value), right)
        faults.collective(name, torch.ones_like(value), right)
        STATE.begin_step()
        assert torch.equal(faults.collective(name, value, right), right(value)), kind
        assert not torch.equal(faults.collective(name, value, right), right(value)), kind


def test_rounding_is_the_last_digit_and_the_same_on_every_rank() -> None:
    value = parts()[1]
    STATE.set(Fault(kind=ROUNDING, site=0, seed=4))
    changed = faults.residual(value, 0)
    error = ((changed - value).abs() / value.abs()).max()
    assert 0 < error <= 2 * torch.finfo(value.dtype).eps
    STATE.rank = 0
    assert torch.equal(faults.residual(value, 0), changed)
    STATE.set(Fault(kind=ROUNDING, site=0, seed=5))
    assert not torch.equal(faults.residual(value, 0), changed)


def test_the_catalogue_has_every_kind_at_several_sites_and_ranks() -> None:
    entries = catalogue(quick=False)
    kinds = {entry.fault.kind for entry in entries}
    assert kinds == {*RESIDUAL_FAULTS, *COLLECTIVE_FAULTS["reduce_scatter"], *COLLECTIVE_FAULTS["all_gather"]}
    assert len(kinds) >= 16
    for kind in kinds:
        mine = [entry for entry in entries if entry.fault.kind == kind]
        assert len({entry.site for entry in mine}) >= SITES - 1
        assert all(0 <= entry.site < SITES and entry.ranks <= set(range(RANKS)) for entry in mine)
    assert len({entry.name for entry in entries}) == len(entries)
    assert {entry.fault.kind for entry in catalogue(quick=True)} == kinds


def test_healthy_plans_differ_in_seed_and_size() -> None:
    plans = healthy_plans(30)
    assert len({plan.model_dump_json() for plan in plans}) == 30
    assert {sum(map(sum, plan.waves)) % RANKS for plan in plans} == {0, 1}
    assert all(length <= 40 for plan in [*plans, fault_plan()] for wave in plan.waves for length in wave)
