"""A controller for as long as somebody needs one: connected to Ray, dispatching, and gone in order."""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from service.dispatch import questions
from service.dispatch.controller import Controller
from service.settings import Settings
from service.store import Store
from workers.zygote.client import Zygote, can_offer


@contextlib.contextmanager
def running(settings: Settings, store: Store, *, alone: bool = False) -> Iterator[Controller]:
    """A controller that is connected to Ray, after it has put in order what dead ones left.

    Ray starts in the background: a matrix can be audited, and refused, meanwhile. ``alone``: see ``Controller``.
    """
    controller = Controller(settings, store, alone=alone)
    controller.recover()
    leave = threading.Event()
    connecting = threading.Thread(
        target=controller.connection.keep, args=(settings, leave, alone), name="ray", daemon=True
    )
    connecting.start()
    zygotes = _zygotes(settings)
    try:
        with controller.dispatching():
            yield controller
    finally:
        leave.set()
        connecting.join()
        for zygote in zygotes:
            zygote.close()


@contextlib.contextmanager
def serving(settings: Settings, store: Store) -> Iterator[Controller]:
    """As :func:`running`, for a process that is told to end by SIGTERM: what runs is drained before it does."""
    signal.signal(signal.SIGTERM, _leave)
    drained = threading.Event()
    threading.Thread(target=_have_time, args=(drained,), name="alarm", daemon=True).start()
    with running(settings, store) as controller:
        try:
            yield controller
        finally:
            controller.drain()
    drained.set()


def _leave(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(0)


def _have_time(drained: threading.Event) -> None:
    """Ray's core puts a handler of its own before ours, whose alarm aborts the process three seconds after SIGTERM."""
    while not drained.wait(1.0):
        signal.alarm(0)


def _zygotes(settings: Settings) -> list[Zygote]:
    """One for cold starts and one for warm ones. Engines of a cluster run elsewhere, where these do not reach."""
    folder = Path(tempfile.gettempdir())
    if not settings.preload or settings.cluster_address is not None or not can_offer(folder):
        return []
    try:
        for_ranks = questions.catalogue(settings).for_ranks
    except questions.EngineEnvironmentError:
        # Whoever submits a matrix is told.
        return []
    return [Zygote(str(settings.python), folder, number, for_ranks) for number in range(2)]
