"""A controller on a Ray cluster that others started: it is used, it is left, and it may grow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster

from service.dispatch.cluster import cluster
from service.domain.errors import MatrixError
from service.domain.lifecycle import State
from service.settings import Settings
from workers.protocol import Check

from .scripted import Asked, cells, controlling, has_ended, settings_in, short_folder, submit, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CPUS, GPUS = 4, 2
COLD = (Check.COMPILE,)


@dataclass(frozen=True)
class There:
    """``address``: of the cluster, which is also in ``RAY_ADDRESS``."""

    cluster: Cluster
    address: str
    folder: Path

    def settings(self, name: str, **more: object) -> Settings:
        return settings_in(self.folder / name, **more)

    def gated(self, name: str, gate: Path, ranks: int = 1, devices: int = 0) -> Asked:
        return Asked(name, COLD, ranks, {"GATE": str(gate), "NAME": name}, devices=devices)


@pytest.fixture(scope="module")
def there() -> Iterator[There]:
    # GPUs are numbers to Ray: it gives them out, whether there are any or not.
    node = {"num_cpus": CPUS, "num_gpus": GPUS, "include_dashboard": False}
    with short_folder() as folder, pytest.MonkeyPatch.context() as patched:
        head = {**node, "temp_dir": str(folder / "ray"), "_system_config": {"prestart_worker_first_driver": False}}
        found = Cluster(initialize_head=True, shutdown_at_exit=False, head_node_args=head)
        patched.setenv("RAY_ADDRESS", found.address)
        try:
            yield There(found, found.address, folder)
        finally:
            found.shutdown()


def states(store: object, sweep: str) -> dict[str, State]:
    return {name: cell.state for name, cell in cells(store, sweep).items()}  # type: ignore[arg-type]


def test_ray_address_leads_to_it_and_it_stays_when_the_controller_leaves(there: There) -> None:
    settings = there.settings("uses")
    assert settings.cluster_address == there.address
    with controlling(settings) as (controller, store):
        sweep = submit(controller, settings, Asked("a", COLD), Asked("b", COLD, env={"B": "1"}))
        until(lambda: has_ended(store, sweep))
        assert set(states(store, sweep).values()) == {State.FINISHED}
    assert not ray.is_initialized()
    with cluster(settings):
        assert ray.cluster_resources()["GPU"] == GPUS
        until(lambda: ray.available_resources().get("CPU") == CPUS)


def test_no_key_has_more_runs_at_once_than_one_may(there: There) -> None:
    settings = there.settings("keys", max_parallel_per_key=1)
    gate = settings.home / "gate"
    with controlling(settings) as (controller, store):
        mine = submit(controller, settings, there.gated("m0", gate), there.gated("m1", gate), key_id="mine")
        also_mine = submit(controller, settings, there.gated("m2", gate), key_id="mine")
        others = submit(controller, settings, there.gated("o0", gate), key_id="other")
        nobodys = submit(controller, settings, there.gated("n0", gate), there.gated("n1", gate))

        def running(*sweeps: str) -> int:
            return sum(list(states(store, sweep).values()).count(State.RUNNING) for sweep in sweeps)

        until(lambda: (running(mine), running(others), running(nobodys)) == (1, 1, 2))
        assert running(also_mine) == 0, "a key is one key, whatever sweep it runs"
        gate.touch()
        for sweep in (mine, also_mine, others, nobodys):
            until(lambda sweep=sweep: has_ended(store, sweep))


def test_what_no_machine_has_room_for_is_refused(there: There) -> None:
    settings = there.settings("refuses")
    with controlling(settings) as (controller, store):
        fits = submit(controller, settings, Asked("fits", COLD, ranks=GPUS, devices=GPUS))
        with pytest.raises(MatrixError) as refused:
            submit(controller, settings, Asked("too-large", COLD, ranks=GPUS + 1, devices=GPUS))
        (problem,) = refused.value.problems
        assert problem.code == "no-room"
        assert "needs 3 GPUs of one machine, or equally many of each of several" in problem.message
        assert problem.message.endswith("and the cluster has machines with 2 GPUs")
        until(lambda: has_ended(store, fits))
        assert states(store, fits) == {"fits": State.FINISHED}


def test_a_cluster_that_grows_is_waited_for(there: There) -> None:
    """``SHARDPROOF_AUTOSCALING``: it is taken, waits, and runs as soon as there is a machine that has room."""
    settings = there.settings("grows", autoscaling=True)
    with controlling(settings) as (controller, store):
        sweep = submit(controller, settings, Asked("large", COLD, ranks=GPUS + 1, devices=GPUS))
        small = submit(controller, settings, Asked("small", COLD, ranks=1, devices=GPUS))
        until(lambda: has_ended(store, small))
        assert states(store, sweep) == {"large": State.LEASED}, "it waits, and holds up nobody"
        there.cluster.add_node(num_cpus=1, num_gpus=GPUS + 1)
        until(lambda: has_ended(store, sweep))
        assert states(store, sweep) == {"large": State.FINISHED}
