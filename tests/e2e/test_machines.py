"""A real engine over two machines: two Ray nodes of one slot each, a rank on either, and what is said of them."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from dispatch.pair import two_nodes

from service.dispatch.cluster import cluster, slots
from service.dispatch.execution import execute
from service.dispatch.seats import Seats
from service.settings import Settings
from workers.processes import SCRATCH, scratch_folder
from workers.protocol import (
    AGAIN,
    INVARIANTS,
    ArmSpec,
    BatchPlan,
    Check,
    Evidence,
    Fault,
    Outcome,
    OutputClass,
    Patch,
    PatchMode,
    Residual,
    Role,
    RunSpec,
    Trial,
)
from workers.residual.arms import examine
from workers.residual.taps import site_name
from workers.selftest.catalogue import RANKS, THRESHOLD
from workers.selftest.engines import BASE, SP_SETTINGS, WITH_SP, Engine
from workers.starts import TIMED
from workers.zygote.client import Zygote

pytestmark = pytest.mark.engine

REPLICATED = Engine("replicated", Role.REPLICATED, BASE | {f"{SP_SETTINGS}.enable_sp": False})
SP = Engine("sp", Role.PROBE, BASE | WITH_SP, THRESHOLD)
FAULT = Fault(kind="zero-buffer", site=2, rank=1)
"""In the rank that is not where the engine is."""

FAULTY = "faulty"


@dataclass(frozen=True)
class Ran:
    """``evidence``: of the cell's run. ``spec``: what it was asked."""

    spec: RunSpec
    evidence: Evidence

    def arm_folder(self, role: Role) -> Path:
        return Path(next(arm.folder for arm in self.spec.arms if arm.role is role))


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """The temporary folder of all that runs here. A process that has imported vLLM is offered in it, as by ``run``."""
    with pytest.MonkeyPatch.context() as patched, scratch_folder() as folder:
        assert folder.name.startswith(SCRATCH)
        patched.setenv("TMPDIR", str(folder))
        patched.setattr(tempfile, "tempdir", str(folder))
        zygotes = [Zygote(sys.executable, folder, number) for number in (0, 1)]
        yield folder
        for zygote in zygotes:
            zygote.close()


@pytest.fixture(scope="module")
def settings(place: Path) -> Iterator[Settings]:
    with two_nodes(place) as address:
        settings = Settings(home=place / "home", ray_address=address)
        with cluster(settings):
            yield settings


def arm_of(engine: Engine, role: Role, root: Path, **fields: Any) -> ArmSpec:
    told: dict[str, Any] = {
        "role": role,
        "key": role,
        "engine": engine.settings,
        "patches": dict.fromkeys(Patch, PatchMode.ON),
        "env": {},
        "batch": BatchPlan(),
        "taps": role not in TIMED,
        "folder": str(root / role),
        "cache_root": str(root / f"{role}-cache"),
        "models_dir": str(root / "models"),
        "timeout_s": 1200.0,
        "toolchain": None if role in TIMED else str(root / "toolchain"),
    }
    return ArmSpec(**(told | fields))


def run(spec: RunSpec, settings: Settings, seats: Seats) -> Evidence:
    *_, last = execute(spec, slots(RANKS, 0), settings, seats)
    return Evidence.model_validate(last["data"])


@pytest.fixture(scope="module")
def ran(settings: Settings, place: Path) -> Ran:
    """As the controller has it run: the shared arm first, then the cell; here with a fault at the end."""
    root, seats = place / "run", Seats()
    again = Trial(name=AGAIN, batch=BatchPlan())
    replicated = arm_of(REPLICATED, Role.REPLICATED, root, trials=[again])
    shared = RunSpec(run_id="shared", cell="replicated", checks=[], arms=[replicated], shape=REPLICATED.shape)
    cache = {"cache_root": str(root / "cache")}
    arms = [
        arm_of(SP, Role.COLD, root, **cache),
        arm_of(SP, Role.WARM, root, **cache),
        arm_of(SP, Role.PROBE, root, trials=[Trial(name=FAULTY, batch=BatchPlan(), fault=FAULT)]),
    ]
    checks = [Check.COMPILE, Check.RESIDUAL, Check.OUTPUTS]
    spec = RunSpec(run_id="cell", cell="cell", checks=checks, arms=arms, shape=SP.shape, replicated=replicated.folder)
    try:
        made = run(shared, settings, seats)
        assert [arm.outcome for arm in made.arms] == [Outcome.OK], made.arms
        return Ran(spec, run(spec, settings, seats))
    finally:
        seats.close()


def test_it_comes_through_on_two_machines(ran: Ran) -> None:
    arms = ran.evidence.arms
    assert [(arm.role, arm.outcome) for arm in arms] == [
        (Role.COLD, Outcome.OK),
        (Role.WARM, Outcome.OK),
        (Role.PROBE, Outcome.OK),
    ], arms
    for arm in arms:
        assert [machine.ranks for machine in arm.machines] == [[0], [1]]
        assert len({machine.node for machine in arm.machines}) == RANKS


def test_a_warm_start_finds_what_the_cold_one_compiled_on_either(ran: Ran) -> None:
    """With another address to meet at: where an engine runs does not enter vLLM's cache key."""
    cold, warm = (start.times for start in ran.evidence.compile.starts)
    assert [(rank.saved > 0, rank.loaded) for rank in cold.artifacts.ranks] == [(True, 0)] * RANKS
    assert [(rank.saved, rank.loaded > 0, rank.compiled) for rank in warm.artifacts.ranks] == [(0, True, 0)] * RANKS
    assert all(start.cache_keys == [] for start in ran.evidence.compile.starts)
    for times in (cold, warm):
        assert [rank.rank for rank in times.ranks] == list(range(RANKS))
        assert all(resource.artifact_bytes for resource in times.resources)
        assert all(process.spans for process in times.processes if process.rank is not None)


def test_both_ranks_hold_the_same_as_without_sequence_parallelism(ran: Ran) -> None:
    (compared,) = [found for found in ran.evidence.residual if found.subject is Role.PROBE]
    assert (compared.bitwise_equal, compared.ranks, compared.missing) == (True, RANKS, []), compared
    assert compared.scattered
    sp = ran.evidence.exercised.sequence_parallelism
    assert sp is not None
    assert sp.expected == sp.matched > 0
    assert len(sp.per_rank) == RANKS
    held = {found.name: found.held for found in ran.evidence.invariants if found.arm is Role.PROBE}
    assert {held[name] for name in INVARIANTS if held[name] is not None} == {True}
    assert {found.klass for found in ran.evidence.outputs} == {OutputClass.IDENTICAL}


def test_a_fault_in_the_rank_of_the_other_machine_is_found_there(ran: Ran) -> None:
    faulty = ran.arm_folder(Role.PROBE) / FAULTY
    residuals, _ = examine(ran.spec, faulty)
    found = next(one for one in residuals if one.subject is Role.PROBE)
    assert isinstance(found, Residual)
    assert found.bitwise_equal is False
    assert found.first_divergence is not None
    assert (found.first_divergence.site, found.first_divergence.rank) == (site_name(2), 1), found.first_divergence


def test_nothing_stays_behind(ran: Ran, place: Path) -> None:
    assert not [path for path in (place / "run").rglob("*machine-1*") if path.is_dir()]
    shutil.rmtree(place / "run")
