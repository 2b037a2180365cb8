"""Which folders go and which stay: real folders, a real store, no engine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from store.samples import add_sweep

from service.dispatch import identity, retention
from service.dispatch.controller import Controller
from service.report import stored_report
from service.settings import Settings
from service.store import Store, open_store, repositories
from workers.artifacts import ArtifactPlace

SWEEPS = [f"20261130-02150{second}-ab12cd" for second in range(4)]

Fill = Callable[..., Path]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'shardproof.db'}")
    yield store
    store.close()


@pytest.fixture
def fill(tmp_path: Path) -> Fill:
    """The folder of a sweep with the logs of a run, a shared arm, and what their compile caches hold."""

    def fill(sweep_id: str, size: int = 1000) -> Path:
        folder = Settings(home=tmp_path).artifacts_dir / sweep_id
        for arm in ("arms/key", "cells/c0/run/cold", "arms/key/cache/torch", "cells/c0/run/cold-2-cache"):
            (folder / arm).mkdir(parents=True)
            (folder / arm / "file").write_bytes(bytes(size // 4))
        (folder / "cells/c0/run/cache").mkdir()
        return folder

    return fill


@pytest.fixture(scope="module")
def dead() -> str:
    """A controller process that has ended."""
    code = "from service.dispatch.identity import me; print(me(), end='')"
    return subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout


def ended(store: Store, *sweeps: str) -> None:
    for sweep_id in sweeps:
        add_sweep(store, sweep_id, owner=identity.me())
        with store.transaction() as session:
            repositories.end_sweep(session, sweep_id)


def removed_at(store: Store, sweep_id: str) -> str | None:
    with store.reading() as session:
        found: str | None = stored_report(session, sweep_id)["sweep"]["artifacts_removed_at"]
    return found


def test_artifacts_of_the_oldest_sweeps_go_and_the_report_says_so(tmp_path: Path, store: Store, fill: Fill) -> None:
    ended(store, *SWEEPS)
    folders = [fill(sweep_id) for sweep_id in SWEEPS]
    assert retention.tidy(Settings(home=tmp_path, retention_sweeps=2), store) == SWEEPS[:2]
    assert [folder.exists() for folder in folders] == [False, False, True, True]
    assert [removed_at(store, sweep_id) is None for sweep_id in SWEEPS] == [False, False, True, True]
    with store.reading() as session:
        assert len(repositories.cells_of(session, SWEEPS[0])) == 2, "what the store has stays"
    said = removed_at(store, SWEEPS[0])
    assert retention.tidy(Settings(home=tmp_path, retention_sweeps=2), store) == []
    assert removed_at(store, SWEEPS[0]) == said


def test_bytes_are_a_bound_too(tmp_path: Path, store: Store, fill: Fill) -> None:
    ended(store, *SWEEPS)
    for sweep_id in SWEEPS:
        fill(sweep_id, size=1000)
    assert retention.tidy(Settings(home=tmp_path, retention_bytes=3000), store) == SWEEPS[:1]
    assert retention.tidy(Settings(home=tmp_path, retention_bytes=3000), store) == []
    assert retention.tidy(Settings(home=tmp_path), store) == [], "by default there is room for many"


def test_a_sweep_that_runs_is_left_alone(tmp_path: Path, store: Store, fill: Fill) -> None:
    add_sweep(store, SWEEPS[0], owner=identity.me())
    running, old, new = fill(SWEEPS[0]), fill(SWEEPS[1]), fill(SWEEPS[2])
    ended(store, *SWEEPS[1:3])
    assert retention.tidy(Settings(home=tmp_path, retention_sweeps=1), store) == [SWEEPS[1]]
    assert (running.exists(), old.exists(), new.exists()) == (True, False, True)


def test_a_folder_that_no_store_knows_goes_unless_its_controller_is_there(
    tmp_path: Path, store: Store, fill: Fill, dead: str
) -> None:
    folders = [fill(sweep_id) for sweep_id in SWEEPS]
    (folders[1] / retention.OWNER).write_text(dead)
    retention.claim(folders[2])
    assert retention.tidy(Settings(home=tmp_path, retention_sweeps=0), store) == [SWEEPS[0], SWEEPS[1], SWEEPS[3]]
    assert [folder.exists() for folder in folders] == [False, False, True, False]


def test_what_was_not_made_here_is_left_alone(tmp_path: Path, store: Store, fill: Fill) -> None:
    settings = Settings(home=tmp_path, retention_sweeps=0)
    assert retention.tidy(settings, store) == [], "there is no folder at all"
    mine = settings.artifacts_dir / "notes"
    mine.mkdir(parents=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = settings.artifacts_dir / SWEEPS[0]
    link.symlink_to(elsewhere, target_is_directory=True)
    assert retention.tidy(settings, store) == []
    assert (mine.exists(), link.exists()) == (True, True)


def test_what_dead_controllers_left_is_taken_away_at_the_next_start(
    tmp_path: Path, store: Store, fill: Fill, dead: str
) -> None:
    """Their sweeps are ended first, so they count; of the one that stays its compile caches go."""
    for sweep_id in SWEEPS[:2]:
        add_sweep(store, sweep_id, owner=dead)
    old, new = fill(SWEEPS[0]), fill(SWEEPS[1])
    caches = [path for pattern in retention.CACHES for path in new.glob(pattern)]
    assert len(caches) == 3
    pipe = new / "cells/c0/run/cold" / retention.PIPE
    os.mkfifo(pipe)
    Controller(Settings(home=tmp_path, retention_sweeps=1), store).recover()
    assert not old.exists()
    assert [path.exists() for path in (*caches, pipe)] == [False] * 4
    assert (new / "arms/key/file").exists()
    assert (new / "cells/c0/run/cold/file").exists()


def test_a_folder_that_cannot_be_read_stops_no_controller(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, dead: str
) -> None:
    def full(*_: object) -> list[str]:
        raise OSError("disk gone")

    add_sweep(store, SWEEPS[0], owner=dead)
    monkeypatch.setattr(retention, "tidy", full)
    assert Controller(Settings(home=tmp_path), store).recover() == [SWEEPS[0]]


def test_what_was_copied_elsewhere_goes_too_and_what_is_not_ours_stays(
    store: Store, fill: Fill, tmp_path: Path
) -> None:
    url = f"file://{tmp_path / 'copies'}"
    place = ArtifactPlace(url)
    ended(store, *SWEEPS[:2])
    for sweep_id in SWEEPS[:3]:
        place.put(fill(sweep_id), sweep_id)
    settings = Settings(home=tmp_path, artifacts_url=url, retention_sweeps=1)
    shutil.rmtree(settings.artifacts_dir / SWEEPS[0])
    retention.claim(settings.artifacts_dir / SWEEPS[2])
    assert retention.tidy(settings, store) == [SWEEPS[0]]
    assert place.names() == SWEEPS[1:3]
    with store.reading() as session:
        assert repositories.get_sweep(session, SWEEPS[0]).artifacts_removed_at is not None
