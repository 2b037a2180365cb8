"""End with the process that started this one. Apart from ``workers.processes``, whose imports take longer than this."""

from __future__ import annotations

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Let the kernel kill this process when the thread that started it ends. Linux only.

    A parent that is gone already would never be noticed, so that is looked at once more.
    """
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
