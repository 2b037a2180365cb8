"""A controller that is killed is followed by one that goes on: real processes, a real Ray in each, real SIGKILLs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dispatch.scripted import cells, has_ended, settings_in, until
from service.dispatch import identity
from service.domain.lifecycle import State
from service.store import Store, open_store, repositories
from service.store.records import ArmState

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CELLS = 3
TESTS = Path(__file__).parent.parent


@pytest.fixture
def home(tmp_path: Path) -> Path:
    settings_in(tmp_path)
    return tmp_path


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{home / 'shardproof.db'}")
    yield store
    store.close()


@contextlib.contextmanager
def serving(home: Path, *cells: str) -> Iterator[subprocess.Popen[str]]:
    """A controller in a process of its own, below a supervisor as the command is; ended at the end."""
    path = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    variables = os.environ | {"PYTHONPATH": path}
    lifeline, mine = os.pipe()
    supervisor = [sys.executable, "-m", "workers.supervisor", str(lifeline)]
    command = [*supervisor, sys.executable, "-m", "dispatch.scripted", str(home), *cells]
    with (home / "controller.log").open("a") as log:
        process = subprocess.Popen(
            command,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            pass_fds=(lifeline,),
        )
    os.close(lifeline)
    try:
        yield process
    finally:
        os.close(mine)
        process.communicate(timeout=60)


def controller_of(supervisor: subprocess.Popen[str]) -> psutil.Process:
    """The process that a supervisor started."""
    for child in psutil.Process(supervisor.pid).children():
        if "dispatch.scripted" in " ".join(child.cmdline()):
            return child
    raise AssertionError("it has no controller")


def open_gates(home: Path) -> None:
    for number in range(CELLS):
        (home / f"gate-{number}").touch()


def test_a_killed_controller_is_followed_by_one_that_goes_on(home: Path, store: Store) -> None:
    """Killed in the middle: one cell done, others running or waiting. Every cell ends, and none has two results."""
    with serving(home, str(CELLS)) as first:
        assert first.stdout is not None
        sweep = first.stdout.readline().strip()
        until(lambda: cells(store, sweep)["c0"].state.ended and _going(store, sweep))
        before = cells(store, sweep)
        controller = controller_of(first)
        owner = f"{identity.me().split(':')[0]}:{controller.pid}:{controller.create_time():.2f}"
        controller.kill()
        first.wait(60)
    assert not identity.alive(owner)
    open_gates(home)
    with serving(home) as second:
        until(lambda: has_ended(store, sweep))
        assert second.poll() is None
    found = cells(store, sweep)
    assert [cell.state for cell in found.values()] == [State.FINISHED] * len(found)
    assert found["c0"] == before["c0"], "what was concluded stays as it was"
    attempts = {name: _attempts(store, sweep, cell.id) for name, cell in found.items()}
    assert all(states[-1] is State.FINISHED and set(states[:-1]) <= {State.CRASHED} for states in attempts.values())
    assert attempts["c0"] == [State.FINISHED]
    assert [State.CRASHED, State.FINISHED] in attempts.values(), "one was running when the controller was killed"
    assert not _arms_again(store, sweep), "shared arms that were done are not run again"


def test_with_the_same_cells_and_no_kill_there_is_one_attempt_at_each(home: Path, store: Store) -> None:
    open_gates(home)
    with serving(home, str(CELLS)) as only:
        assert only.stdout is not None
        sweep = only.stdout.readline().strip()
        until(lambda: has_ended(store, sweep))
    found = cells(store, sweep)
    assert [_attempts(store, sweep, cell.id) for cell in found.values()] == [[State.FINISHED]] * len(found)
    assert not _arms_again(store, sweep)


def test_a_controller_that_is_shut_down_hands_back_what_runs(home: Path, store: Store) -> None:
    """It costs no attempt, and the next one begins at once."""
    with serving(home, str(CELLS)) as first:
        assert first.stdout is not None
        assert first.stdin is not None
        sweep = first.stdout.readline().strip()
        until(lambda: _going(store, sweep))
        first.stdin.close()
        first.stdin = None
        first.wait(90)
    with store.reading() as session:
        jobs = repositories.jobs_of(session, sweep)
        assert repositories.get_leader(session, "shared") is None
    assert {job.state for job in jobs} == {State.QUEUED}
    assert {job.lost for job in jobs} == {0}
    assert any("handed back (the controller is shut down)" in job.story for job in jobs)


def _going(store: Store, sweep: str) -> bool:
    with store.reading() as session:
        return any(job.state is State.RUNNING for job in repositories.jobs_of(session, sweep))


def _attempts(store: Store, sweep: str, cell: str) -> list[State]:
    with store.reading() as session:
        return [run.state for run in repositories.runs_of(session, sweep, cell)]


def _arms_again(store: Store, sweep: str) -> bool:
    """Was a shared arm begun more than once? All have come through."""
    with store.reading() as session:
        jobs = [job for job in repositories.jobs_of(session, sweep) if job.kind == "arm"]
        arms = [repositories.get_arm(session, job.id) for job in jobs]
    assert [arm and arm.state for arm in arms] == [ArmState.DONE] * len(arms)
    return any(job.leases > 1 for job in jobs)
