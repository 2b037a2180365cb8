"""The likely cause, read from stacks of real processes that really sit in the code that is named."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from workers.watchdog import signals, stacks
from workers.watchdog.causes import Cause, Reading, read
from workers.watchdog.frames import Frame, Stack, Thread

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

READY = "import os; os.write(1, b'.')\n"


@contextlib.contextmanager
def process(code: str, *arguments: str, **environment: str) -> Iterator[int]:
    """A process that runs ``code``, once it has said that it is ready. It and its children are gone at the end."""
    command = [sys.executable, "-c", code, *arguments]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        env=os.environ | environment,
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdin is not None
            assert child.stdout.read(1) == b"."
            yield child.pid
        finally:
            child.kill()
            # Its children end with what they read from, or clean up after it: all of them hold its output.
            child.communicate()


def now(pid: int) -> tuple[Reading, Stack]:
    found = stacks.take(os.getpid())
    own = next(stack for stack in found if stack.pid == pid)
    return read(own, found), own


def arrives(pid: int, cause: Cause) -> Reading:
    """Look until the process is where it is going to. That it never gets there ends the test by its time limit."""
    while (found := now(pid)[0]).cause is not cause:
        pass
    return found


# --- what is known ---------------------------------------------------------------------------------------------------

FILELOCK = READY + "import sys, filelock; filelock.FileLock(sys.argv[1]).acquire()"
TORCH_LOCK = READY + "import sys\nfrom torch.utils._filelock import FileLock\nwith FileLock(sys.argv[1]): pass"


@pytest.mark.parametrize("code", [FILELOCK, TORCH_LOCK], ids=["filelock", "torch's own"])
def test_a_lock_that_another_process_holds(tmp_path: Path, code: str) -> None:
    import filelock

    with filelock.FileLock(tmp_path / "lock"), process(code, str(tmp_path / "lock")) as pid:
        found = arrives(pid, Cause.LOCK)
    assert not found.waits
    assert str(found).startswith("waiting for the lock of a shared cache, in ")


class _Silent(BaseHTTPRequestHandler):
    """A server that takes the request and never answers."""

    def do_GET(self) -> None:
        self.server.asked.set()  # type: ignore[attr-defined]
        self.server.over.wait()  # type: ignore[attr-defined]

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def silent_server() -> Iterator[tuple[str, threading.Event]]:
    with HTTPServer(("127.0.0.1", 0), _Silent) as server:
        server.asked, server.over = threading.Event(), threading.Event()  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/model", server.asked  # type: ignore[attr-defined]
        finally:
            server.over.set()  # type: ignore[attr-defined]
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    "code",
    ["import urllib.request; urllib.request.urlopen(sys.argv[1])", "import requests; requests.get(sys.argv[1])"],
    ids=["urllib", "requests"],
)
def test_a_server_that_does_not_answer(code: str) -> None:
    with silent_server() as (url, asked), process(f"import sys\n{READY}{code}", url, no_proxy="*") as pid:
        assert asked.wait(60)
        assert arrives(pid, Cause.NETWORK).cause is Cause.NETWORK


COMPILE = (
    READY + "from torch._inductor.cpp_builder import run_compile_cmd; import sys; run_compile_cmd(sys.argv[1], '/')"
)


def test_a_compiler_that_does_not_come_to_an_end(tmp_path: Path) -> None:
    compiler = tmp_path / "g++"
    compiler.write_text("#!/bin/sh\nread line\n")
    compiler.chmod(0o755)
    with process(COMPILE, str(compiler)) as pid:
        found = arrives(pid, Cause.COMPILER)
    assert found.where is not None
    assert found.where.file.endswith("torch/_inductor/cpp_builder.py")


OTHER_CHILD = READY + "import subprocess, sys; subprocess.run([sys.argv[1]])"


@pytest.mark.parametrize(("name", "cause"), [("cc1plus", Cause.COMPILER), ("tidy", Cause.UNKNOWN)])
def test_a_child_is_a_compiler_by_its_name(tmp_path: Path, name: str, cause: Cause) -> None:
    os.symlink("/bin/cat", tmp_path / name)
    with process(OTHER_CHILD, str(tmp_path / name)) as pid:
        while not any(name in stack.command and stack.parent == pid for stack in stacks.take(os.getpid())):
            pass
        while "subprocess" not in now(pid)[1].main[0].file:
            pass
        assert now(pid)[0].cause is cause


CHAIN = """
import logging, torch
from torch._inductor import graph
graph.log.setLevel(logging.INFO)
graph.log.handlers = [logging.StreamHandler(open("/dev/null", "w"))]
graph.log.propagate = False

@torch.library.custom_op("watched::pair", mutates_args=())
def pair(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return a + b, a - b

@pair.register_fake
def _(a, b):
    return torch.empty_like(a), torch.empty_like(a)

@torch.library.custom_op("watched::last", mutates_args=())
def last(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a + b

@last.register_fake
def _(a, b):
    return torch.empty_like(a)

def model(a):
    b = a
    for _ in range(40):
        a, b = pair(a, b)
    return last(a, b)

os.write(1, b".")
torch.compile(model, fullgraph=True)(torch.ones(4))
"""
"""A log line is written where an op is first seen. Each layer of what it is given doubles its length."""


def test_a_compilation_that_formats_the_inputs_of_fallback_ops(tmp_path: Path) -> None:
    with process("import os\n" + CHAIN, TORCHINDUCTOR_CACHE_DIR=str(tmp_path)) as pid:
        found = arrives(pid, Cause.FORMATTING)
    assert found.where is not None
    assert "torch/_inductor" in found.where.file


BARRIER = """
import sys, torch.distributed as group
group.init_process_group("gloo", store=group.FileStore(sys.argv[1], 2), rank=int(sys.argv[2]), world_size=2)
os.write(1, b".")
if sys.argv[2] == "0":
    group.barrier()
sys.stdin.read()
"""


def test_a_rank_that_waits_in_a_collective_waits_for_others(tmp_path: Path) -> None:
    store, held = str(tmp_path / "store"), contextlib.ExitStack()
    code = "import os\n" + BARRIER
    started = {}

    def start(rank: int) -> None:
        started[rank] = held.enter_context(process(code, store, str(rank)))

    with held:
        # Each waits in its start for the other one.
        threads = [threading.Thread(target=start, args=(rank,)) for rank in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert arrives(started[0], Cause.COLLECTIVE).waits
        other, _ = now(started[1])
    assert (other.cause, other.waits) == (Cause.UNKNOWN, False)


QUEUE = """
from vllm.distributed.device_communicators.shm_broadcast import MessageQueue
writer = MessageQueue(1, 1)
reader = MessageQueue.create_from_handle(writer.export_handle(), 0)
os.write(1, b".")
reader.dequeue()
"""


def test_a_rank_without_a_message_waits_for_others() -> None:
    # The path of a socket is short.
    with (
        tempfile.TemporaryDirectory(prefix="sp-") as folder,
        process("import os\n" + QUEUE, VLLM_RPC_BASE_PATH=folder, VLLM_NO_USAGE_STATS="1") as pid,
    ):
        assert arrives(pid, Cause.BROADCAST).waits


# --- what is not -----------------------------------------------------------------------------------------------------


def test_a_stack_that_nothing_is_known_of_is_called_unknown() -> None:
    with process("import signal\ndef somewhere():\n    signal.pause()\n" + READY + "somewhere()") as pid:
        while (found := now(pid))[1].main[0].function != "somewhere":
            pass
    assert found[0].cause is Cause.UNKNOWN
    assert str(found[0]) == "unknown, in somewhere (<string>:3)"


LIBRARY = "/usr/lib/python3.11/"


def stack(*frames: tuple[str, str], others: tuple[Thread, ...] = ()) -> Stack:
    """Frames as (function, file), the innermost first."""
    main = Thread("MainThread", True, tuple(Frame(function, file, 1) for function, file in frames))
    return Stack(1, 0, "python", (main, *others))


BROADCAST = ("dequeue", "/site-packages/vllm/distributed/device_communicators/shm_broadcast.py")


@pytest.mark.parametrize(
    ("frames", "cause"),
    [
        ([("poll", "/site-packages/zmq/sugar/poll.py"), BROADCAST], Cause.BROADCAST),
        # Below a frame of vLLM's groups it does something of its own: it does not wait.
        ([("slow", "/site-packages/mine/kernel.py"), BROADCAST], Cause.UNKNOWN),
        ([("synchronize", "/site-packages/torch/cuda/__init__.py")], Cause.DEVICE),
        ([("benchmark", "/site-packages/torch/_inductor/select_algorithm.py")], Cause.AUTOTUNING),
        # A compiler's module that runs no program, an own function that is called like theirs.
        ([("load", "/site-packages/torch/_inductor/codecache.py")], Cause.UNKNOWN),
        ([("operator_str", "/home/me/exc.py")], Cause.UNKNOWN),
        ([("accept", LIBRARY + "socket.py")], Cause.UNKNOWN),
        ([], Cause.UNKNOWN),
    ],
)
def test_signatures(frames: list[tuple[str, str]], cause: Cause) -> None:
    assert read(stack(*frames)).cause is cause


def test_the_innermost_frame_that_tells_tells() -> None:
    inner, outer = ("read", LIBRARY + "ssl.py"), ("autotune", "/site-packages/torch/_inductor/select_algorithm.py")
    assert read(stack(inner, outer)).cause is Cause.NETWORK
    assert read(stack(outer, inner)).cause is Cause.AUTOTUNING


def test_a_main_thread_that_waits_for_another_is_told_by_that_one() -> None:
    other = Thread("download", False, (Frame("read", LIBRARY + "ssl.py", 1),))
    assert read(stack(("wait", LIBRARY + "threading.py"), others=(other,))).cause is Cause.NETWORK
    assert read(stack(("work", "/home/me/work.py"), others=(other,))).cause is Cause.UNKNOWN


# --- the second way --------------------------------------------------------------------------------------------------

ANSWERS = """
import sys, threading
from workers.watchdog import signals
signals.register()
signals.register()
def aside():
    threading.Event().wait()
def somewhere():
    sys.stdin.read()
thread = threading.Thread(target=aside, daemon=True)
thread.start()
os.write(1, b".")
somewhere()
"""


def test_a_process_tells_its_stacks_when_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with process("import os\n" + ANSWERS) as pid:
        spied = now(pid)[1]
        monkeypatch.setattr(stacks, "spy", lambda: None)
        for _ in range(2):
            told = now(pid)[1]
            assert (told.problem, len(told.threads)) == (None, 2)
            assert {thread.main for thread in told.threads} == {True, False}
            assert [frame.function for frame in told.main][:1] in (["somewhere"], ["<module>"])
        assert {frame.function for thread in spied.threads for frame in thread.frames} >= {"aside", "somewhere"}


def test_a_process_that_would_die_of_being_asked_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "spy", lambda: None)
    with process(READY + "import sys; sys.stdin.read()") as pid:
        assert signals.ask(pid) == ()
        assert now(pid)[1].problem == "py-spy is not installed"
        assert os.path.exists(f"/proc/{pid}/exe")


def test_a_process_that_is_gone_has_no_stack() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    assert stacks.take(gone.pid) == []
    assert signals.ask(gone.pid) == ()
