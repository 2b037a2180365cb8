"""Runs one after the other through a real Ray, their engines played by a script: nothing grows."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from store.samples import run_spec
from test_starts import ENGINE

from service.dispatch.cluster import cluster, slots
from service.dispatch.execution import execute
from service.dispatch.seats import Seats
from service.settings import Settings
from workers.protocol import Evidence, Outcome

from .actors import actors

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

RUNS = 5
BREATHING = 2
"""Ray's processes open a file now and then and close it again. What leaks, leaks with every run."""

Counts = dict[int, int]
"""Process id → open descriptors, of this process and everything below it."""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The temporary folder. Short: Ray puts sockets below it."""
    folder = Path(tempfile.mkdtemp(prefix="sp-"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def counts() -> Counts:
    me = psutil.Process()
    found = {}
    for process in [me, *me.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            found[process.pid] = process.num_fds()
    return found


def run(settings: Settings, number: int, seats: Seats) -> Counts:
    """One run to its end; what is open then, of its actor too if that is kept."""
    spec = run_spec(f"run-{number}")
    own = {"folder": f"{settings.home}/{number}/cold", "cache_root": f"{settings.home}/{number}/cache"}
    spec = spec.model_copy(update={"arms": [spec.arms[0].model_copy(update=own)]})
    *_, last = execute(spec, slots(2, 0), settings, seats)
    evidence = Evidence.model_validate(last["data"])
    assert [arm.outcome for arm in evidence.arms] == [Outcome.OK]
    return counts()


def run_alone(settings: Settings, number: int) -> Counts:
    """One run in an actor that serves no other; what is open once that is gone."""
    seats = Seats()
    seats.close()
    run(settings, number, seats)
    assert psutil.wait_procs(actors(), timeout=60)[1] == []
    return counts()


def run_next(settings: Settings, number: int, seats: Seats) -> Counts:
    """One run in the actor of the one before."""
    before = [actor.pid for actor in actors()]
    found = run(settings, number, seats)
    after = [actor.pid for actor in actors()]
    assert len(after) == 1
    assert before in (after, [])
    return found


def grown(first: Counts, last: Counts) -> int:
    """How many more descriptors the processes have after the last run that were there after the first."""
    return sum(last[pid] - first[pid] for pid in first.keys() & last.keys())


def settings_in(folder: Path) -> Settings:
    python = folder / "python"
    python.write_text(f"#!{sys.executable} -S\n{ENGINE}\n")
    python.chmod(0o755)
    return Settings(home=folder / "home", python=python)


def growth(folder: Path) -> int:
    settings = settings_in(folder)
    before = counts()
    with cluster(settings):
        first, *_, last = [run_alone(settings, number) for number in range(RUNS)]
        assert len(first.keys() & last.keys()) > 3, "this process and those of Ray"
    assert counts().keys() <= before.keys(), "Ray takes everything with it"
    assert [path.name for path in folder.glob("shpf-*")] == [], "so do supervisors"
    return grown(first, last)


def test_descriptors_do_not_grow_with_the_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_LOG_MONITOR_MAX_OPEN_FILES", raising=False)
    assert growth(folder) <= BREATHING


def test_a_leak_would_be_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Left alone, Ray keeps two files of every worker that was ever there open."""
    monkeypatch.setenv("RAY_LOG_MONITOR_MAX_OPEN_FILES", "200")
    assert growth(folder) > BREATHING


def test_nor_do_they_in_an_actor_that_serves_run_after_run(folder: Path) -> None:
    settings, seats = settings_in(folder), Seats()
    with cluster(settings):
        first, *_, last = [run_next(settings, number, seats) for number in range(RUNS)]
        assert grown(first, last) <= BREATHING
        served = actors()
        seats.close()
        assert psutil.wait_procs(served, timeout=60)[1] == []
