"""A run over two machines: a real Ray with two nodes of one slot each, and a recorded engine with two ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
from played import played
from store.samples import run_spec

from service.dispatch.cluster import Connection, cluster, slots
from service.dispatch.execution import Halt, RunLost, RunStopped, execute
from service.dispatch.placement import EXECUTOR, refuse_what_never_fits
from service.dispatch.seats import Seats
from service.domain.document import Document
from service.domain.errors import MatrixError
from service.settings import Settings
from workers.arms import MOST_PROCESSES
from workers.protocol import ArmReport, Check, Evidence, Outcome, Role, RunSpec

from .pair import RANKS, actors, engine_of, playing, two_nodes
from .scripted import Asked, plan_of, shape, short_folder, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

AT_ONCE, SLOWLY = 50.0, 1.0
"""How fast the recording is emitted: within a second; or so that a test can see to its end before it ends."""

PAIR = shape(RANKS).model_copy(update={"hidden_size": 128})


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    # The folder of all tests is made now, and not within one that goes with these.
    tmp_path_factory.getbasetemp()
    with short_folder() as folder, two_nodes(folder) as address:
        settings = Settings(home=folder / "home", ray_address=address)
        with cluster(settings):
            yield settings


@pytest.fixture
def seats(settings: Settings) -> Iterator[Seats]:
    """Nothing of a run is left when they are closed."""
    seats = Seats()
    yield seats
    seats.close()
    until(lambda: ray.available_resources().get("CPU") == RANKS)
    until(lambda: not playing())


def spec_of(root: Path, speed: float = AT_ONCE, *roles: Role, **fields: Any) -> RunSpec:
    arms = played(root, speed, roles or (Role.COLD,), **{"timeout_s": 600.0, **fields})
    return run_spec("run").model_copy(update={"arms": arms, "shape": PAIR})


def run(
    spec: RunSpec, settings: Settings, seats: Seats, halt: Halt | None = None, heard: set[int | None] | None = None
) -> Evidence:
    """``heard``: is told the ranks that were heard of."""
    for event in execute(spec, slots(RANKS, 0), settings, seats, halt):
        if heard is not None:
            heard.add(event["rank"])
    return Evidence.model_validate(event["data"])


def while_it_runs(
    settings: Settings, seats: Seats, root: Path, act: Callable[[], None], halt: Halt | None = None, **fields: Any
) -> Evidence:
    """A run that takes a while, and what ``act`` does to it once both ranks were heard of."""
    heard: set[int | None] = set()
    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(run, spec_of(root, SLOWLY, **fields), settings, seats, halt, heard)
        until(lambda: future.done() or heard >= set(range(RANKS)))
        assert not future.done(), future.result()
        act()
        return future.result(60)


def test_slots_are_spread_over_machines(settings: Settings) -> None:
    assert slots(RANKS, 0).machines == RANKS
    assert slots(1, 0).machines == 1
    assert slots(RANKS + 1, 0).machines == 1, "there is no room, so the ranks share cores as on one machine"


@pytest.mark.parametrize(("executor", "refused"), [("ray", True), ("mp", False), (None, False)])
def test_an_executor_that_is_not_used_over_machines_is_refused(
    settings: Settings, executor: str | None, refused: bool
) -> None:
    there = Connection()
    there._change(True, None)
    plan = plan_of(settings, Asked("a", (Check.COMPILE,), RANKS))
    (item,) = plan.cells
    asked = replace(item, cell=replace(item.cell, requested={**item.cell.requested, EXECUTOR: executor}))
    found: list[str] = []
    try:
        refuse_what_never_fits(Document({}), replace(plan, cells=(asked,)), there, settings)
    except MatrixError as error:
        found = [problem.message for problem in error.problems]
    why = "needs 2 machines of the cluster, over which vLLM's executor 'mp' runs it, and asks for 'ray'"
    assert found == ([f"cell a {why}"] if refused else [])


def test_a_run_over_two_machines_is_told_as_one(settings: Settings, seats: Seats, tmp_path: Path) -> None:
    found = run(spec_of(tmp_path, AT_ONCE, Role.COLD, Role.WARM), settings, seats)
    assert [(arm.role, arm.outcome) for arm in found.arms] == [(Role.COLD, Outcome.OK), (Role.WARM, Outcome.OK)]
    for arm in found.arms:
        assert [machine.ranks for machine in arm.machines] == [[0], [1]]
        assert len({machine.node for machine in arm.machines}) == 2
    for start in found.compile.starts:
        assert [rank.rank for rank in start.times.ranks] == [0, 1]
        assert all(rank.phases for rank in start.times.ranks)
        here, there = [process for process in start.times.processes if process.rank is not None]
        assert here.pid < MOST_PROCESSES < there.pid < 2 * MOST_PROCESSES
        assert there.spans, "what it wrote was brought here"
        assert there.problems == []
    assert (tmp_path / Role.COLD / "engine-machine-1.log").exists()
    assert not (tmp_path / Role.COLD / "machine-1").exists()
    assert not list(tmp_path.glob("cache*"))


def test_a_second_run_has_the_same_seat(settings: Settings, seats: Seats, tmp_path: Path) -> None:
    run(spec_of(tmp_path / "one"), settings, seats)
    before = [process.pid for process in actors("RunActor") + actors("FollowerActor")]
    assert len(before) == 2
    assert run(spec_of(tmp_path / "two"), settings, seats).arms[0].outcome is Outcome.OK
    assert [process.pid for process in actors("RunActor") + actors("FollowerActor")] == before


def _failed(found: Evidence) -> ArmReport:
    (arm,) = found.arms
    assert arm.failure is not None
    return arm


@pytest.mark.parametrize(
    ("machine", "named"),
    [
        # Its main process ends at once, and may be seen to be gone as early.
        ("leads", {0, None}),
        ("follows", {1}),
    ],
)
def test_a_rank_that_dies_is_named_wherever_it_ran(
    settings: Settings, seats: Seats, tmp_path: Path, machine: str, named: set[int | None]
) -> None:
    def kill() -> None:
        max(engine_of(machine), key=lambda process: process.pid).kill()

    arm = _failed(while_it_runs(settings, seats, tmp_path, kill))
    assert arm.failure is not None
    assert arm.outcome is Outcome.CRASHED
    assert arm.failure.rank in named
    assert "ended without a word" in arm.failure.message
    assert arm.failure.log_tail


@pytest.mark.parametrize("name", ["RunActor", "FollowerActor"])
def test_an_actor_that_dies_costs_the_run(settings: Settings, seats: Seats, tmp_path: Path, name: str) -> None:
    def kill() -> None:
        (actor,) = actors(name)
        actor.kill()

    with pytest.raises(RunLost):
        while_it_runs(settings, seats, tmp_path, kill)


def test_a_run_that_is_stopped_is_stopped_on_both(settings: Settings, seats: Seats, tmp_path: Path) -> None:
    halt = Halt()
    with pytest.raises(RunStopped):
        while_it_runs(settings, seats, tmp_path, halt.stop, halt)


def test_when_time_is_up_both_are_looked_at(settings: Settings, seats: Seats, tmp_path: Path) -> None:
    arm = _failed(while_it_runs(settings, seats, tmp_path, lambda: None, timeout_s=8.0))
    assert arm.failure is not None
    assert arm.outcome is Outcome.TIMED_OUT
    assert {process.rank for process in arm.failure.processes} >= {0, 1}
    assert arm.failure.stacks is not None
    assert "rank 1" in Path(arm.failure.stacks).read_text()
