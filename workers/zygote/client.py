"""Start zygotes, and have engines forked from them.

A zygote is offered to all processes below the one that owns it: its socket lies in their temporary folder, which is
theirs alone. Where none is offered, or it cannot serve, an engine is started as any program is.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psutil

from workers import environment
from workers.processes import SCRATCH, shared_memory
from workers.zygote.requests import LARGEST, READY, Forked, Request

BACKLOG = 64


class Zygote:
    """A process of the engine environment ``python`` that has imported vLLM, or is about to. Ends with its owner.

    ``for_ranks``: environment variables that vLLM sets for ranks before they import. The zygote imports with them too:
    what is forked from it may be a rank.
    """

    def __init__(self, python: str, folder: Path, number: int = 0, for_ranks: dict[str, str] | None = None) -> None:
        path = _address(python, folder, number)
        path.unlink(missing_ok=True)
        lifeline, self._lifeline = os.pipe()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(path))
            listener.listen(BACKLOG)
            self._process = subprocess.Popen(
                [python, "-m", "workers.zygote.server", str(listener.fileno()), str(lifeline)],
                env=environment.for_question(str(folder / "no-cache"))
                | (for_ranks or {})
                | {environment.FOR_RANKS: json.dumps(for_ranks or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(listener.fileno(), lifeline),
                start_new_session=True,
            )
        os.close(lifeline)

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """Let it end, with whatever still runs below it and the semaphores that its imports made."""
        mapped = shared_memory(psutil.Process(self.pid))
        os.close(self._lifeline)
        self._process.wait()
        for path in mapped:
            path.unlink(missing_ok=True)


class ForkedEngine:
    """An engine's supervisor that was forked from a zygote."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self._connection = connection
        self._status: int | None = None
        self.pid = pid

    def fileno(self) -> int:
        """Readable when it has ended."""
        return self._connection.fileno()

    def wait(self) -> int:
        """Its exit status, when it has ended. A zygote that is gone took it along."""
        if self._status is None:
            try:
                told = self._connection.recv(LARGEST)
            except OSError:
                told = b""
            status = Forked.model_validate_json(told).status if told else None
            self._status = -signal.SIGKILL if status is None else status
            self._connection.close()
        return self._status


@dataclass(frozen=True)
class NotForked:
    """``differing``: variables that imports may have read, and that the engine is to have otherwise than the zygote."""

    differing: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        if self.differing:
            return f"imports read variables that it is to have otherwise: {', '.join(self.differing)}"
        return "the process to fork from could not fork it"


def can_offer(folder: Path) -> bool:
    """Whether only processes of this command see what lies in ``folder``."""
    return folder.name.startswith(SCRATCH)


def connect(python: str, number: int = 0) -> socket.socket | None:
    """A zygote of ``python`` that waits for a request; ``None`` where there is none. Waits for its imports."""
    folder = Path(tempfile.gettempdir())
    address = _address(python, folder, number)
    if not can_offer(folder) or not address.is_socket():
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(str(address))
        if connection.recv(LARGEST) == READY:
            return connection
    except OSError:
        pass
    connection.close()
    return None


def fork(connection: socket.socket, request: Request, lifeline: int, output: int) -> ForkedEngine | NotForked:
    """The supervisor of the engine that ``request`` asks for, or why it has to be started by itself."""
    try:
        socket.send_fds(connection, [request.model_dump_json().encode()], [lifeline, output])
        told = connection.recv(LARGEST)
    except OSError:
        told = b""
    answer = Forked.model_validate_json(told) if told else Forked()
    if answer.pid is None:
        connection.close()
        return NotForked(answer.differing)
    return ForkedEngine(connection, answer.pid)


def ask(python: str, command: list[str], env: dict[str, str], timeout_s: float) -> tuple[int | None, str] | None:
    """What a fork of a zygote that does ``python -m workers.engine`` with the arguments ``command`` prints.

    Returns:
        Its exit status, ``None`` when it did not end within ``timeout_s``, and what it printed. Nothing at all where
        there is no zygote that can do it.
    """
    connection = connect(python)
    if connection is None:
        return None
    lifeline, ours = os.pipe()
    with tempfile.TemporaryFile() as output:
        request = Request(command=command, env=env, folder=os.getcwd())
        forked = fork(connection, request, lifeline, output.fileno())
        os.close(lifeline)
        in_time = isinstance(forked, ForkedEngine) and bool(select.select([forked], [], [], timeout_s)[0])
        os.close(ours)
        if isinstance(forked, NotForked):
            return None
        status = forked.wait()
        output.seek(0)
        return status if in_time else None, output.read().decode(errors="replace")


def _address(python: str, folder: Path, number: int) -> Path:
    return folder / f"zygote-{hashlib.sha256(python.encode()).hexdigest()[:8]}-{number}"
