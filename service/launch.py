"""Entry point of ``shardproof``: commands that start Ray and engines run under a supervisor.

Ray leaves helpers of its own behind when the process that started it is killed. So such a command is a child of a
supervisor, which ends everything below it whichever way the command ends, and whichever of the two is killed. This
module imports nothing heavy: the outer process only waits.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from types import FrameType

SUPERVISED = "SHARDPROOF_SUPERVISED"
SERVES = "serve"
STARTS_ENGINES = ("demo", "run", "serve", "selftest")


def main() -> None:
    """Run the command line, supervised where it needs to be."""
    if sys.argv[1:2] and sys.argv[1] in STARTS_ENGINES and "--help" not in sys.argv and SUPERVISED not in os.environ:
        sys.exit(_supervise())
    if SUPERVISED in os.environ:
        # The supervisor ignores Ctrl-C, and its children would inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    from service.cli import main as command_line

    command_line()


def _supervise() -> int:
    lifeline, mine = os.pipe()
    command = [sys.executable, "-m", "workers.supervisor", str(lifeline), sys.executable, "-m", "service.launch"]
    supervisor = subprocess.Popen([*command, *sys.argv[1:]], env=os.environ | {SUPERVISED: "1"}, pass_fds=(lifeline,))
    os.close(lifeline)

    def stop(_signal: int, _frame: FrameType | None) -> None:
        os.close(mine)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def drain(_signal: int, _frame: FrameType | None) -> None:
        """Whoever serves ends in order; at the second time as the others do."""
        signal.signal(signal.SIGTERM, stop)
        _terminate_children(supervisor.pid)

    # Ctrl-C reaches the command itself, which shuts down in order; whoever terminates this process wants it gone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, drain if sys.argv[1] == SERVES else stop)
    return supervisor.wait()


def _terminate_children(pid: int) -> None:
    # Only now: this process starts at once and waits.
    import psutil

    for child in psutil.Process(pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            child.terminate()


if __name__ == "__main__":
    main()
