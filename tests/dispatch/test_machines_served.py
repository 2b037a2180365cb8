"""A sweep whose cell needs two machines, through a controller: what was lost with one of them is run again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from service.dispatch_load import matrix
from service.domain.document import parse
from service.domain.lifecycle import State
from service.domain.verdict import Verdict
from service.recordings import recorded
from service.report import stored_report
from service.settings import Settings
from service.store import repositories

from .pair import actors, engine_of, playing, two_nodes
from .scripted import cells, controlling, has_ended, short_folder, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def settings() -> Iterator[Settings]:
    with short_folder() as folder, two_nodes(folder) as address:
        yield Settings(
            home=folder / "home", ray_address=address, null_engine=recorded(), null_engine_speed=4.0, preload=False
        )


def test_a_cell_whose_follower_is_killed_is_run_again(settings: Settings) -> None:
    with controlling(settings) as (controller, store):
        sweep = controller.submit(parse(matrix(recorded(), 1)))
        until(lambda: len(engine_of("follows")) == 2)
        (actor,) = actors("FollowerActor")
        actor.kill()
        until(lambda: has_ended(store, sweep))
        (cell,) = cells(store, sweep).values()
        assert (cell.state, cell.verdict) == (State.FINISHED, Verdict.PASS)
        with store.reading() as session:
            runs = repositories.runs_of(session, sweep, cell.id)
            (told,) = stored_report(session, sweep)["cells"]
        assert sorted(run.state for run in runs) == sorted([State.CRASHED, State.FINISHED])
        for arm in told["arms"]:
            assert [machine["ranks"] for machine in arm["machines"]] == [[0], [1]]
        assert any("it ran on 2 machines: rank 0 on " in reason for reason in told["reasons"])
    until(lambda: not playing())
