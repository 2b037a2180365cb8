"""A controller that is killed is followed by one that goes on: the served command, a real Ray, real SIGKILLs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from service.domain.lifecycle import State
from service.settings import Settings
from service.store import Store, open_store, repositories
from service.store.records import ArmState
from workers.protocol import Check

from .scripted import Asked, cells, has_ended, settings_in, short_folder, store_sweep, until
from .served import controller_of, serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def settings() -> Iterator[Settings]:
    with short_folder() as folder:
        yield settings_in(folder / "home")


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    store = open_store(settings.store_url)
    yield store
    store.close()


@pytest.fixture
def sweep(settings: Settings, store: Store) -> str:
    """Its first cell is done soon, the next one waits for a gate, and the last one needs shared arms."""
    waits = Asked("c1", (Check.COMPILE,), env={"GATE": str(settings.home / "gate")})
    return store_sweep(settings, store, Asked("c0", (Check.COMPILE,)), waits, Asked("shares"))


def test_a_killed_controller_is_followed_by_one_that_goes_on(settings: Settings, store: Store, sweep: str) -> None:
    """Killed in the middle: one cell done, others running or waiting. Every cell ends, and none has two results."""
    with serving(settings) as first:
        until(lambda: cells(store, sweep)["c0"].state.ended and _going(store, sweep))
        before = cells(store, sweep)
        controller_of(first).kill()
        first.wait(60)
    (settings.home / "gate").touch()
    with serving(settings) as second:
        until(lambda: has_ended(store, sweep))
        assert second.poll() is None
    found = cells(store, sweep)
    assert [cell.state for cell in found.values()] == [State.FINISHED] * len(found)
    assert found["c0"] == before["c0"], "what was concluded stays as it was"
    attempts = {name: _attempts(store, sweep, cell.id) for name, cell in found.items()}
    assert all(states[-1] is State.FINISHED and set(states[:-1]) <= {State.CRASHED} for states in attempts.values())
    assert attempts["c0"] == [State.FINISHED]
    assert [State.CRASHED, State.FINISHED] in attempts.values(), "one was running when the controller was killed"
    assert _leases_of_arms(store, sweep) == {1}, "shared arms that were done are not run again"


def test_a_controller_that_is_terminated_hands_back_what_runs(settings: Settings, store: Store, sweep: str) -> None:
    """It costs no attempt, and another one may lead at once."""
    with serving(settings) as first:
        until(lambda: cells(store, sweep)["c0"].state.ended and _going(store, sweep))
        first.terminate()
        assert first.wait(60) == 0
    with store.reading() as session:
        jobs = repositories.jobs_of(session, sweep)
        assert repositories.get_leader(session, "shared") is None
    assert {job.state for job in jobs} == {State.QUEUED, State.FINISHED}
    assert {job.lost for job in jobs} == {0}
    assert any("handed back (the controller is shut down)" in job.story for job in jobs)


def _going(store: Store, sweep: str) -> bool:
    with store.reading() as session:
        return any(job.state is State.RUNNING for job in repositories.jobs_of(session, sweep))


def _attempts(store: Store, sweep: str, cell: str) -> list[State]:
    with store.reading() as session:
        return [run.state for run in repositories.runs_of(session, sweep, cell)]


def _leases_of_arms(store: Store, sweep: str) -> set[int]:
    """How often shared arms were begun. All have come through."""
    with store.reading() as session:
        jobs = [job for job in repositories.jobs_of(session, sweep) if job.kind == "arm"]
        arms = [repositories.get_arm(session, job.id) for job in jobs]
    assert [arm and arm.state for arm in arms] == [ArmState.DONE] * len(arms)
    return {job.leases for job in jobs}
