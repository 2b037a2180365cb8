"""The supervisor for real: whatever its child leaves behind is gone, and nothing else is.

Nothing here waits by the clock: children say on a pipe when they are there, and their end is seen on a pidfd.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from workers import processes

pytestmark = pytest.mark.timeout(60)

BOUND_S = 30.0
"""How long an end may take on a busy machine before it counts as not coming."""

SHM = Path("/dev/shm")

TREE = """
import os, signal, sys, time

def say(name):
    os.write(1, f"{name} {os.getpid()}\\n".encode())

def pause():
    while True:
        signal.pause()

def plain():
    if os.fork() == 0:
        say("child")
        pause()

def daemon():
    first = os.fork()
    if first == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            say("daemon")
            pause()
        os._exit(0)
    os.waitpid(first, 0)

for member in sys.argv[2:]:
    globals()[member]()
say("main")
sys.stdin.readline()
how, _, number = sys.argv[1].partition("=")
if how == "exit":
    os._exit(int(number))
if how == "signal":
    os.kill(os.getpid(), int(number))
pause()
"""
"""Starts the members named after its first argument, waits for a line, and ends as the first argument says."""


@dataclasses.dataclass(frozen=True)
class Member:
    """A process of a supervised tree, held by a pidfd so that its end is seen and its id is never mistaken."""

    pid: int
    pidfd: int

    def is_gone(self, within_s: float = 0.0) -> bool:
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(within_s * 1000))


@dataclasses.dataclass
class Supervised:
    process: subprocess.Popen[bytes]
    lifeline: int
    members: dict[str, Member] = dataclasses.field(default_factory=dict)

    def hear(self, count: int) -> dict[str, Member]:
        """Wait until ``count`` members have said who they are."""
        for _ in range(count):
            name, pid = self.line().split()
            while name in self.members:
                name += "'"
            self.members[name] = Member(int(pid), os.pidfd_open(int(pid)))
        return self.members

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def cut(self) -> None:
        if self.lifeline >= 0:
            os.close(self.lifeline)
            self.lifeline = -1

    def wait(self) -> int:
        """Its exit status. All processes that hold its output are gone by then, or reading it would not end."""
        status = self.process.wait(BOUND_S)
        assert self.process.stdout is not None
        self.process.stdout.read()
        return status


@contextlib.contextmanager
def supervised(root: Path, *command: str) -> Iterator[Supervised]:
    """A supervisor that runs ``command`` and has its scratch folders below ``root``."""
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "workers.supervisor", str(read), *command],
        env=os.environ | {"TMPDIR": str(root)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=(read,),
        start_new_session=True,
    )
    os.close(read)
    found = Supervised(process, write)
    try:
        yield found
    finally:
        found.cut()
        # A supervisor that fails its test leaves nothing behind either.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(BOUND_S / 3)
        process.kill()
        process.wait(BOUND_S)
        for member in found.members.values():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(member.pidfd, signal.SIGKILL)
            os.close(member.pidfd)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-S", "-c", code, *arguments]


def tree(*arguments: str) -> list[str]:
    return python(TREE, *arguments)


def scratches(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


# --- the whole tree goes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ends", "status"),
    [("exit=0", 0), ("exit=3", 3), (f"signal={signal.SIGKILL}", 137), (f"signal={signal.SIGSEGV}", 139)],
)
def test_what_an_engine_leaves_behind_is_ended_and_its_status_passed_on(tmp_path: Path, ends: str, status: int) -> None:
    with supervised(tmp_path, *tree(ends, "plain", "daemon")) as supervisor:
        members = supervisor.hear(3)
        assert not any(member.is_gone() for member in members.values())
        supervisor.go()
        assert supervisor.wait() == status
        assert {name for name, member in members.items() if member.is_gone()} == {"main", "child", "daemon"}


def test_a_closed_lifeline_ends_everything(tmp_path: Path) -> None:
    with supervised(tmp_path, *tree("hang", "plain", "daemon", "daemon")) as supervisor:
        members = supervisor.hear(4)
        supervisor.cut()
        assert supervisor.wait() == 128 + signal.SIGKILL
        assert {name for name, member in members.items() if member.is_gone()} == {"main", "child", "daemon", "daemon'"}
    assert scratches(tmp_path) == []


def test_an_actor_that_dies_closes_its_lifeline(tmp_path: Path) -> None:
    actor = (
        "import os, signal, subprocess, sys\n"
        "read, write = os.pipe()\n"
        "command = [sys.executable, '-m', 'workers.supervisor', str(read), *sys.argv[1:]]\n"
        "process = subprocess.Popen(command, pass_fds=(read,))\n"
        "os.close(read)\n"
        "process.wait()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", actor, *tree("hang", "daemon")],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        told = Supervised(process, -1)
        members = told.hear(2)
        process.kill()
        assert all(member.is_gone(within_s=BOUND_S) for member in members.values())
        # Read to its end: the supervisor, which holds the pipe too, is gone as well.
        told.wait()
        for member in members.values():
            os.close(member.pidfd)
    assert scratches(tmp_path) == []


def test_a_killed_supervisor_takes_the_engine_with_it(tmp_path: Path) -> None:
    with supervised(tmp_path, *tree("hang")) as supervisor:
        members = supervisor.hear(1)
        supervisor.process.kill()
        assert members["main"].is_gone(within_s=BOUND_S)


def test_an_interrupt_in_the_terminal_is_the_actor_s_business(tmp_path: Path) -> None:
    with supervised(tmp_path, *tree("exit=5")) as supervisor:
        members = supervisor.hear(1)
        os.kill(supervisor.process.pid, signal.SIGINT)
        assert not members["main"].is_gone()
        supervisor.go()
        assert supervisor.wait() == 5


def test_a_command_that_is_not_there_is_no_hang(tmp_path: Path) -> None:
    with supervised(tmp_path, str(tmp_path / "nowhere")) as supervisor:
        assert supervisor.wait() != 0
    assert scratches(tmp_path) == []


def test_a_parent_that_is_gone_already_is_noticed() -> None:
    code = (
        "import os\n"
        "from workers.processes import die_with_parent\n"
        "parents = iter([4321, 1])\n"
        "os.getppid = lambda: next(parents)\n"
        "die_with_parent()\n"
        "print('still here')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=BOUND_S, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"")


def test_a_process_that_goes_while_it_is_looked_at_does_not_run() -> None:
    with subprocess.Popen(python("input()"), stdin=subprocess.PIPE) as child:
        assert processes._runs(child.pid)
        assert child.stdin is not None
        child.stdin.close()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        # A zombie, and then nothing at all.
        assert not processes._runs(child.pid)
        child.wait(BOUND_S)
        assert not processes._runs(child.pid)


# --- its scratch folder ----------------------------------------------------------------------------------------------

SAY_TMP = "import os; print(os.environ['TMPDIR'], os.environ['VLLM_RPC_BASE_PATH'], flush=True); input()"


def test_the_scratch_folder_is_the_engine_s_and_goes_with_it(tmp_path: Path) -> None:
    with supervised(tmp_path, *python(SAY_TMP)) as supervisor:
        folder, sockets = map(Path, supervisor.line().split())
        assert folder == sockets
        assert folder.parent == tmp_path
        assert folder.name.startswith(f"{processes.SCRATCH}{supervisor.process.pid}-")
        (folder / "left" / "behind").mkdir(parents=True)
        supervisor.go()
        supervisor.wait()
        assert scratches(tmp_path) == []


def test_the_scratch_folder_of_a_dead_supervisor_is_taken_away_by_the_next(tmp_path: Path) -> None:
    with supervised(tmp_path, *python(SAY_TMP)) as killed:
        stale = Path(killed.line().split()[0])
        killed.process.kill()
        # Nobody waits for it yet, as in a container whose first process reaps nothing.
        os.waitid(os.P_PID, killed.process.pid, os.WEXITED | os.WNOWAIT)
        assert stale.is_dir()
        with supervised(tmp_path, *python(SAY_TMP)) as following:
            own = Path(following.line().split()[0])
            assert scratches(tmp_path) == [own.name]


@pytest.fixture
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def dead_pid() -> int:
    with subprocess.Popen(python("")) as child:
        child.wait(BOUND_S)
        return child.pid


def test_folders_of_the_living_and_of_others_are_left_alone(in_tmp: Path) -> None:
    kept = [
        f"{processes.SCRATCH}{os.getpid()}-abc",
        f"{processes.SCRATCH}notes-abc",
        "shardproof",
        f"other-{dead_pid()}-abc",
    ]
    for name in kept:
        (in_tmp / name).mkdir()
    with processes.scratch_folder() as folder:
        assert scratches(in_tmp) == sorted([*kept, folder.name])
    assert scratches(in_tmp) == sorted(kept)


def test_a_stale_folder_that_cannot_be_read_is_no_obstacle(in_tmp: Path) -> None:
    stale = in_tmp / f"{processes.SCRATCH}{dead_pid()}-abc"
    (stale / processes.SEGMENTS).mkdir(parents=True)
    with processes.scratch_folder() as folder:
        assert scratches(in_tmp) == [folder.name]


def test_the_scratch_folder_goes_when_the_block_fails(in_tmp: Path) -> None:
    def fail() -> None:
        with processes.scratch_folder() as folder:
            (folder / "file").write_text("")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert scratches(in_tmp) == []


# --- shared memory ---------------------------------------------------------------------------------------------------

NOTE = """
import sys
from pathlib import Path
from workers.processes import note_segments
note_segments(sys.argv[1])
for name in sys.argv[2:]:
    Path("/dev/shm", name).write_bytes(b"x")
print("ready", flush=True)
input()
"""

MAP = """
import mmap, sys
with open(sys.argv[1], "w+b") as file:
    file.truncate(4096)
    mapped = mmap.mmap(file.fileno(), 4096)
print("ready", flush=True)
input()
"""


FAMILY = """
import mmap, os, signal, sys
from workers.processes import die_with_parent
for number in range(8):
    if os.fork() == 0:
        die_with_parent()
        with open(f"{sys.argv[1]}_{number}", "w+b") as file:
            file.truncate(4096)
            mapped = mmap.mmap(file.fileno(), 4096)
        os.write(1, b"ready\\n")
        signal.pause()
signal.pause()
"""


@pytest.fixture
def segment() -> Iterator[str]:
    """A name no other test has. What still bears it afterwards is taken away."""
    name = f"shardproof_test_{uuid.uuid4().hex[:12]}"
    yield name
    for path in SHM.glob(f"*{name}*"):
        path.unlink(missing_ok=True)


def segments(name: str) -> list[str]:
    return sorted(path.name for path in SHM.iterdir() if name in path.name)


@pytest.mark.parametrize("end", ["by itself", "cut"])
def test_noted_segments_go_with_the_engine_and_no_others(tmp_path: Path, segment: str, end: str) -> None:
    names = [f"{segment}_0", f"{segment}_1", f"not_{segment}"]
    with supervised(tmp_path, sys.executable, "-c", NOTE, segment, *names) as supervisor:
        assert supervisor.line() == "ready"
        assert segments(segment) == sorted(names)
        supervisor.go() if end == "by itself" else supervisor.cut()
        supervisor.wait()
    assert segments(segment) == [f"not_{segment}"]


def test_segments_of_a_dead_supervisor_are_taken_away_by_the_next(tmp_path: Path, segment: str) -> None:
    with supervised(tmp_path, sys.executable, "-c", NOTE, segment, f"{segment}_0") as killed:
        assert killed.line() == "ready"
        killed.process.kill()
        killed.wait()
        assert segments(segment) == [f"{segment}_0"]
    with supervised(tmp_path, *tree("exit=0")) as following:
        following.hear(1)
        assert segments(segment) == []


def test_a_segment_that_the_engine_had_mapped_goes_with_it(tmp_path: Path, segment: str) -> None:
    with supervised(tmp_path, *python(MAP, f"/dev/shm/{segment}")) as supervisor:
        assert supervisor.line() == "ready"
        supervisor.cut()
        supervisor.wait()
    assert segments(segment) == []


def test_segments_of_those_that_die_with_their_parent_go_too(tmp_path: Path, segment: str) -> None:
    """They are looked at while they are still there: the parent is the first that is killed."""
    with supervised(tmp_path, sys.executable, "-c", FAMILY, f"/dev/shm/{segment}") as supervisor:
        assert {supervisor.line() for _ in range(8)} == {"ready"}
        assert len(segments(segment)) == 8
        supervisor.cut()
        supervisor.wait()
    assert segments(segment) == []


def test_outside_a_scratch_folder_nothing_is_noted(in_tmp: Path) -> None:
    processes.note_segments("anything")
    assert scratches(in_tmp) == []
