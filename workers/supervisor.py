"""``python -m workers.supervisor LIFELINE COMMAND…``: run COMMAND and see to it that nothing of it stays behind.

The supervisor stands between actor and engine. It ends the engine's whole tree when the lifeline closes (the other end
is held by the actor: closing it means stop, and a dead actor closes it too), and when the engine ends by itself. As
subreaper it inherits every process the engine leaves. Should the supervisor itself be killed, the engine dies with it
(``PR_SET_PDEATHSIG``).

It ends with the engine's exit status; killed by signal n gives 128 + n.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from workers.processes import adopt_orphans, die_with_parent, end_descendants, scratch_folder


class Engine(Protocol):
    """A child process."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """Its exit status, -n after signal n; ``None`` while it runs."""
        ...


def supervise(start: Callable[[dict[str, str]], Engine], lifeline: int) -> int:
    """See the engine that ``start`` starts, given its environment variables, to its end.

    Returns:
        Its exit status, 128 + n when it was killed by signal n.
    """
    adopt_orphans()
    # The actor decides; a Ctrl-C in the terminal must not race it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with scratch_folder() as scratch:
        engine = start(_with_scratch(scratch))
        try:
            _wait(engine, lifeline)
        finally:
            status = engine.poll()
            end_descendants()
    if status is None:
        return 128 + signal.SIGKILL
    return status if status >= 0 else 128 - status


def _with_scratch(scratch: Path) -> dict[str, str]:
    return os.environ | {"TMPDIR": str(scratch), "VLLM_RPC_BASE_PATH": str(scratch)}


def _wait(engine: Engine, lifeline: int) -> None:
    """Until the engine has ended or the lifeline is closed. Nothing is ever written to the lifeline."""
    pidfd = os.pidfd_open(engine.pid)
    try:
        select.select([pidfd, lifeline], [], [])
    finally:
        os.close(pidfd)


def main() -> int:
    lifeline, command = int(sys.argv[1]), sys.argv[2:]
    return supervise(lambda env: subprocess.Popen(command, env=env, preexec_fn=die_with_parent), lifeline)


if __name__ == "__main__":
    sys.exit(main())
