"""A real zygote and real forks of it: honest, told apart, and gone when they should be."""

from __future__ import annotations

import os
import select
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from workers import environment, launch
from workers.processes import scratch_folder
from workers.zygote import client
from workers.zygote.requests import Request

pytestmark = pytest.mark.slow

BOUND_S = 120.0
OF_PYTEST = "PYTEST_CURRENT_TEST"
"""Another one in each test."""


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The temporary folder of a command that offers a zygote."""
    tmp_path_factory.getbasetemp()  # pytest's own stays where it would be
    with scratch_folder() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", None)
        yield folder
    tempfile.tempdir = None


SEGMENTS = Path("/dev/shm")


@pytest.fixture(scope="module")
def zygote(scratch: Path) -> Iterator[client.Zygote]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(OF_PYTEST)
        found = client.Zygote(sys.executable, scratch)
    yield found
    found.close()
    assert [path for path in SEGMENTS.iterdir() if f"-{found.pid}-" in path.name] == []


def variables(**more: str) -> dict[str, str]:
    mine = environment.for_question("no-cache") | more
    return {name: value for name, value in mine.items() if name != OF_PYTEST}


def ask(*command: str, **more: str) -> tuple[int | None, str] | None:
    return client.ask(sys.executable, list(command), variables(**more), BOUND_S)


def test_a_fork_answers_as_a_program_does(zygote: client.Zygote, tmp_path: Path) -> None:
    reply = tmp_path / "reply.json"
    assert ask("diagnose", "--reply", str(reply)) == (0, "")
    assert '"guards"' in reply.read_text()


def test_what_goes_wrong_is_said_as_a_program_says_it(zygote: client.Zygote, tmp_path: Path) -> None:
    status, said = ask("nonsense") or (None, "")
    assert status == 2
    assert "invalid choice: 'nonsense'" in said
    status, said = ask("audit", "--request", str(tmp_path / "nowhere.json")) or (None, "")
    assert status == 1
    assert said.rstrip().endswith(f"No such file or directory: '{tmp_path / 'nowhere.json'}'")


def test_a_fork_that_cannot_begin_ends_and_says_why(zygote: client.Zygote, tmp_path: Path) -> None:
    connection = client.connect(sys.executable)
    assert connection is not None
    with (tmp_path / "log").open("wb") as log:
        asked = Request(command=["diagnose"], env=variables(), folder=str(tmp_path / "gone"))
        forked = client.fork(connection, asked, log.fileno(), log.fileno())
    assert isinstance(forked, client.ForkedEngine)
    assert forked.wait() == 1
    assert "FileNotFoundError" in (tmp_path / "log").read_text()


def test_a_variable_that_imports_read_is_not_ignored(zygote: client.Zygote) -> None:
    assert ask("diagnose", "--reply", os.devnull, TORCHDYNAMO_DISABLE="1") is None


def test_why_it_was_not_forked_is_told(zygote: client.Zygote, tmp_path: Path) -> None:
    told = {}
    for name, more in {"same": {}, "other": {"TORCHDYNAMO_DISABLE": "1"}}.items():
        lifeline, ours = os.pipe()
        with (tmp_path / "log").open("wb") as log:
            begun = launch.launch(sys.executable, ["nonsense"], variables(**more), lifeline, log.fileno())
        assert ended(begun.process)
        assert begun.process.wait() == 2
        told[name] = begun.not_forked
        for descriptor in (lifeline, ours):
            os.close(descriptor)
    assert told["same"] is None
    assert "TORCHDYNAMO_DISABLE" in str(told["other"])


@pytest.fixture
def stuck(zygote: client.Zygote, tmp_path: Path) -> Iterator[tuple[launch.Launched, int, psutil.Process]]:
    """A supervisor whose engine waits for a request that nobody writes, its lifeline, and that engine."""
    request = tmp_path / "request"
    os.mkfifo(request)
    connection = client.connect(sys.executable)
    assert connection is not None
    lifeline, ours = os.pipe()
    with (tmp_path / "log").open("wb") as log:
        asked = Request(command=["audit", "--request", str(request)], env=variables(), folder=str(tmp_path))
        forked = client.fork(connection, asked, lifeline, log.fileno())
    os.close(lifeline)
    assert isinstance(forked, client.ForkedEngine)
    # Opened by both ends at once: the engine is there.
    writer = os.open(request, os.O_WRONLY)
    (engine,) = psutil.Process(forked.pid).children()
    yield forked, ours, engine
    os.close(writer)


def ended(forked: launch.Launched) -> bool:
    return bool(select.select([forked], [], [], BOUND_S)[0])


def gone(process: psutil.Process) -> bool:
    return process in psutil.wait_procs([process], BOUND_S)[0]


def test_it_shows_as_what_it_is(stuck: tuple[launch.Launched, int, psutil.Process]) -> None:
    forked, lifeline, engine = stuck
    assert " ".join(psutil.Process(forked.pid).cmdline()).startswith("workers.supervisor audit")
    assert " ".join(engine.cmdline()).startswith("workers.engine audit")
    assert "PATH" in engine.environ()
    os.close(lifeline)
    assert ended(forked)


def test_it_ends_with_its_lifeline(stuck: tuple[launch.Launched, int, psutil.Process], zygote: client.Zygote) -> None:
    forked, lifeline, engine = stuck
    os.close(lifeline)
    assert ended(forked)
    assert forked.wait() == 128 + signal.SIGKILL
    assert gone(engine)
    assert psutil.Process(zygote.pid).children() == []


def test_a_killed_engine_is_told_from_a_killed_supervisor(
    stuck: tuple[launch.Launched, int, psutil.Process], zygote: client.Zygote
) -> None:
    forked, lifeline, engine = stuck
    engine.kill()
    assert ended(forked)
    assert forked.wait() == 128 + signal.SIGKILL
    os.close(lifeline)


def test_a_killed_supervisor_takes_its_engine_along(stuck: tuple[launch.Launched, int, psutil.Process]) -> None:
    forked, lifeline, engine = stuck
    os.kill(forked.pid, signal.SIGKILL)
    assert ended(forked)
    assert forked.wait() == -signal.SIGKILL
    assert gone(engine)
    os.close(lifeline)


def test_forks_of_a_killed_zygote_end_and_the_next_engine_starts_by_itself(
    zygote: client.Zygote, stuck: tuple[launch.Launched, int, psutil.Process], tmp_path: Path
) -> None:
    """The last test: it takes the zygote away."""
    forked, lifeline, engine = stuck
    os.kill(zygote.pid, signal.SIGKILL)
    assert ended(forked)
    assert forked.wait() == -signal.SIGKILL
    assert gone(engine)
    os.close(lifeline)
    assert client.connect(sys.executable) is None
    lifeline, ours = os.pipe()
    with (tmp_path / "fresh").open("wb") as log:
        begun = launch.launch(sys.executable, ["nonsense"], variables(), lifeline, log.fileno())
    fresh = begun.process
    assert isinstance(fresh, launch.Started)
    assert begun.not_forked == "no process to fork from is offered here"
    assert ended(fresh)
    assert fresh.wait() == 2
    for descriptor in (lifeline, ours):
        os.close(descriptor)
