"""What is asked of the zygote and what it answers, each one message of a connection that keeps message boundaries."""

from __future__ import annotations

from workers.protocol.words import Message

LARGEST = 1 << 17
"""Bytes of a message; less than what a socket of this kind takes at once."""

READY = b"ready"
"""What the zygote says first on each connection: the clock of an engine starts after it."""


class Request(Message):
    """``command``: arguments of ``python -m workers.engine``. ``env``: all environment variables of the engine.

    ``folder``: its working directory. Two descriptors go with it: the lifeline of its supervisor, and what takes its
    standard output and error.
    """

    command: list[str]
    env: dict[str, str]
    folder: str


class Forked(Message):
    """``pid``: of the supervisor, at once. ``status``: its exit status, at its end; a signal n is -n.

    ``differing``: variables that imports may have read and that the engine is to have otherwise than the zygote. It
    cannot be forked then.
    """

    pid: int | None = None
    status: int | None = None
    differing: tuple[str, ...] = ()
