"""A controller that is killed is followed by one that goes on: the served command, a real Ray, real SIGKILLs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dispatch.scripted import Asked, cells, has_ended, settings_in, short_folder, store_sweep, until
from service.domain.lifecycle import State
from service.settings import Settings
from service.store import Store, open_store, repositories
from service.store.records import ArmState
from workers.protocol import Check

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


@contextlib.contextmanager
def serving(settings: Settings) -> Iterator[subprocess.Popen[bytes]]:
    """``shardproof serve``, ended at the end. Its processes have temporary files beside its home."""
    variables = os.environ | {
        "SHARDPROOF_HOME": str(settings.home),
        "SHARDPROOF_PYTHON": str(settings.python),
        "SHARDPROOF_PRELOAD": "false",
        "SHARDPROOF_PORT": "0",
        "SHARDPROOF_DRAIN_S": "0",
        "TMPDIR": str(settings.home.parent),
        "PYTHONPATH": str(Path(__file__).parent.parent.parent),
    }
    with (settings.home / "serve.log").open("a") as log:
        command = [sys.executable, "-m", "service.launch", "serve"]
        process = subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def controller_of(command: subprocess.Popen[bytes]) -> psutil.Process:
    """The process below the supervisor of the command."""
    (supervisor,) = psutil.Process(command.pid).children()
    (controller,) = supervisor.children()
    return controller


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
    """It costs no attempt. The control: what another one that nobody ends makes of the same sweep."""
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
    (settings.home / "gate").touch()
    with serving(settings):
        until(lambda: has_ended(store, sweep))
    attempts = [_attempts(store, sweep, cell.id) for cell in cells(store, sweep).values()]
    assert all(states[-1] is State.FINISHED and set(states[:-1]) <= {State.CANCELLED} for states in attempts)


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
