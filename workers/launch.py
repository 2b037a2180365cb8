"""Start a command of an engine environment below a supervisor: forked from a zygote where one is offered, or anew."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from workers.zygote import client
from workers.zygote.requests import Request


class Launched(Protocol):
    """A supervisor and the engine below it. ``pid``: the supervisor's."""

    pid: int

    def fileno(self) -> int:
        """Readable when it has ended."""
        ...

    def wait(self) -> int:
        """Its exit status, when it has ended."""
        ...


@dataclass(frozen=True)
class Begun:
    """``at``: in seconds of the monotonic clock. ``not_forked``: why it was started by itself, if it was."""

    process: Launched
    at: float
    not_forked: str | None


class Started:
    """A supervisor that was started as a program."""

    def __init__(self, command: list[str], env: dict[str, str], folder: Path, lifeline: int, output: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "workers.supervisor", str(lifeline), *command],
            env=env,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(lifeline,),
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._pidfd = os.pidfd_open(self.pid)

    def fileno(self) -> int:
        """Readable when it has ended."""
        return self._pidfd

    def wait(self) -> int:
        """Its exit status, when it has ended; a signal n is -n."""
        status = self._process.wait()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        return status


ENGINE, NULL_ENGINE = "workers.engine", "workers.null_engine"
"""What is started: vLLM, or what emits a recording of it."""


def launch(
    python: str,
    command: list[str],
    env: dict[str, str],
    lifeline: int,
    output: int,
    zygote: int | None = 0,
    program: str = ENGINE,
) -> Begun:
    """Start ``python -m workers.engine`` with the arguments ``command``.

    Args:
        env: all of its environment variables.
        lifeline: closing the other end of this pipe ends it.
        output: descriptor of what takes its standard output and error.
        zygote: the number of the one that may be used, if any.
        program: the module that is started in place of ``workers.engine``; no zygote has imported another.
    """
    folder = Path.cwd()
    why = "each engine is to import by itself"
    connection = None
    if program != ENGINE:
        why = "it is no engine"
    elif zygote is not None:
        why = "no process to fork from is offered here"
        connection = client.connect(python, zygote)
    begin = time.monotonic()
    if connection is not None:
        request = Request(command=command, env=env, folder=str(folder))
        forked = client.fork(connection, request, lifeline, output)
        if isinstance(forked, client.ForkedEngine):
            return Begun(forked, begin, None)
        why = forked.why
    return Begun(Started([python, "-m", program, *command], env, folder, lifeline, output), begin, why)
