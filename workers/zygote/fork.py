"""What happens in the forks of a zygote: one becomes a supervisor, and its own fork the engine."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import tempfile
import traceback
from typing import NoReturn

from workers import supervisor
from workers.processes import die_with_parent
from workers.zygote import preload
from workers.zygote.requests import Request

ARGUMENTS_ONLY = "SPT_NOENV"
"""Variable by which ``setproctitle`` keeps to the room of the arguments."""


def become_supervisor(request: Request, more: dict[str, str], lifeline: int, output: int) -> NoReturn:
    """Be the supervisor of the engine that ``request`` asks for, and end with its exit status.

    ``more``: environment variables besides those of the request.
    """
    die_with_parent()
    os.setsid()
    _redirect(output)
    os.environ.clear()
    os.environ.update(request.env | more)
    os.chdir(request.folder)
    tempfile.tempdir = None
    _be(f"workers.supervisor {' '.join(request.command)}")
    os._exit(supervisor.supervise(lambda env: Engine(request.command, env), lifeline))


class Engine:
    """A fork of this process that does what ``python -m workers.engine`` does. ``command``: its arguments."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self._status: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            die_with_parent()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.environ.update(env)
            _be(f"workers.engine {' '.join(command)}")
            os._exit(_run(command))

    def poll(self) -> int | None:
        """Its exit status, -n after signal n; ``None`` while it runs."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status


def _run(command: list[str]) -> int:
    """The engine, ended as an interpreter ends: what went wrong is printed, and what was said is written."""
    try:
        preload.forget()
        from workers.engine.__main__ import main

        main(command)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _redirect(output: int) -> None:
    """Nothing to read, everything said to ``output``."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)


def find_title() -> None:
    """To be called while the environment is where the kernel put it: the title lies beside it, and is lost later."""
    # Else it is written over the environment, by which others tell whose process this is.
    os.environ[ARGUMENTS_ONLY] = "1"
    with contextlib.suppress(ImportError):
        importlib.import_module("setproctitle").getproctitle()
    del os.environ[ARGUMENTS_ONLY]


def _be(title: str) -> None:
    """Show under ``title`` in lists of processes. vLLM brings a package for that."""
    with contextlib.suppress(ImportError):
        importlib.import_module("setproctitle").setproctitle(title)
