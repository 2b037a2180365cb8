"""The served command, as an operator has it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from service.settings import Settings


@contextlib.contextmanager
def serving(settings: Settings, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """``shardproof serve``, ended at the end. Its processes have temporary files beside its home.

    ``more``: further environment variables.
    """
    variables = os.environ | {
        "SHARDPROOF_HOME": str(settings.home),
        "SHARDPROOF_PYTHON": str(settings.python),
        "SHARDPROOF_PRELOAD": "false",
        "SHARDPROOF_PORT": "0",
        "SHARDPROOF_DRAIN_S": "0",
        "TMPDIR": str(settings.home.parent),
        "PYTHONPATH": str(Path(__file__).parent.parent.parent),
        **more,
    }
    with (settings.home / "serve.log").open("a") as log:
        command = [sys.executable, "-m", "service.launch", "serve"]
        process = subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def controller_of(command: subprocess.Popen[bytes]) -> psutil.Process:
    """The process below the supervisor of the command."""
    (supervisor,) = psutil.Process(command.pid).children()
    (controller,) = supervisor.children()
    return controller
