"""``shardproof schedules`` against a served application, over HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from api.client import StoringController
from typer.testing import CliRunner, Result

from service.app import create_app
from service.commands.refused import Refused
from service.commands.schedules import app
from service.settings import Settings
from service.store import Store, open_store, repositories

STARTS_WITHIN_S = 30.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'shardproof.db'}")
    yield store
    store.close()


@pytest.fixture
def url(store: Store) -> Iterator[str]:
    application = create_app(Settings(), store, StoringController(store))
    server = uvicorn.Server(uvicorn.Config(application, host="127.0.0.1", port=0, log_config=None))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + STARTS_WITHIN_S
    while not server.started:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(STARTS_WITHIN_S)


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    path = tmp_path / "nightly.yaml"
    path.write_text("name: nightly\nengine: {model: 'tiny:llama'}\nmatrix: {seed: [1], dtype: [float32]}\n")
    return path


class Command:
    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, *arguments: Any) -> Result:
        return CliRunner().invoke(app, [*map(str, arguments), "--url", self._url])

    def output(self, *arguments: Any) -> str:
        result = self(*arguments)
        assert result.exit_code == 0, result.exception
        return result.output.strip()

    def refused(self, *arguments: Any) -> str:
        result = self(*arguments)
        assert isinstance(result.exception, Refused)
        return str(result.exception)


@pytest.fixture
def schedules(url: str) -> Command:
    return Command(url)


def test_from_the_first_to_the_last(schedules: Command, store: Store, matrix: Path) -> None:
    times = ("--cron", "30 2 * * mon-fri", "--timezone", "Europe/Berlin", "--missed", "once")
    due = schedules.output("add", "nightly", matrix, *times)
    with store.reading() as session:
        stored = repositories.get_schedule(session, "nightly")
    assert list(stored.matrix["matrix"]) == ["seed", "dtype"]
    assert (stored.cron, stored.timezone, stored.missed) == ("30 2 * * mon-fri", "Europe/Berlin", "once")
    assert stored.next_at is not None
    assert due == stored.next_at.isoformat().replace("+00:00", "Z")
    assert "nightly" in schedules.output("list")
    assert schedules.output("suspend", "nightly") == "suspended"
    assert "suspended" in schedules.output("list")
    assert schedules.output("resume", "nightly") == due
    sweep_id = schedules.output("run", "nightly")
    with store.reading() as session:
        assert [sweep.id for sweep in repositories.list_sweeps(session, 5)] == [sweep_id]
    shown = schedules.output("show", "nightly")
    assert "asked" in shown
    assert sweep_id in shown
    schedules.output("delete", "nightly")
    assert "nightly" not in schedules.output("list")


def test_all_pages_are_listed(schedules: Command, store: Store, monkeypatch: pytest.MonkeyPatch, matrix: Path) -> None:
    monkeypatch.setattr("service.commands.schedules.PAGE", 2)
    for name in ("a1", "b2", "c3", "d4", "e5"):
        schedules.output("add", name, matrix, "--cron", "0 0 * * *", "--suspended")
    listed = schedules.output("list")
    assert all(name in listed for name in ("a1", "b2", "c3", "d4", "e5"))


def test_what_the_controller_refuses_is_said_in_its_words(schedules: Command, matrix: Path) -> None:
    assert "61 0 * * *" in schedules.refused("add", "nightly", matrix, "--cron", "61 0 * * *")
    assert "there is no schedule 'nope'" in schedules.refused("show", "nope")
    assert "there is no schedule 'nope'" in schedules.refused("suspend", "nope")
    schedules.output("add", "nightly", matrix, "--cron", "0 0 * * *")
    assert "already" in schedules.refused("add", "nightly", matrix, "--cron", "0 0 * * *")


def test_a_matrix_that_cannot_be_used_is_refused_when_it_is_added(schedules: Command, tmp_path: Path) -> None:
    nameless = tmp_path / "nameless.yaml"
    nameless.write_text("engine: {}\n")
    assert "the matrix has no name" in schedules.refused("add", "nightly", nameless, "--cron", "0 0 * * *")


def test_a_run_that_comes_to_nothing_says_why(schedules: Command, tmp_path: Path) -> None:
    fails = tmp_path / "fails.yaml"
    fails.write_text("name: explode\nengine: {model: 'tiny:llama'}\n")
    schedules.output("add", "nightly", fails, "--cron", "0 0 * * *")
    assert "RuntimeError" in schedules.refused("run", "nightly")


def test_a_matrix_that_cannot_be_read(schedules: Command, tmp_path: Path) -> None:
    assert "cannot be read" in schedules.refused("add", "n", tmp_path / "none.yaml", "--cron", "0 0 * * *")
    broken = tmp_path / "broken.yaml"
    broken.write_text("name: [\n")
    assert "line 2" in schedules.refused("add", "n", broken, "--cron", "0 0 * * *")


def test_nobody_answers(matrix: Path) -> None:
    nobody = Command("http://127.0.0.1:9")
    assert "shardproof serve" in nobody.refused("list")
