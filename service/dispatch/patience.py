"""Wait for a database that is away for a while: its server restarts, its disk is full, another process writes long."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.orm import Session

from service.store import Store
from service.store.trouble import StoreUnavailable

logger = logging.getLogger(__name__)

Value = TypeVar("Value")

SHORTEST_S, LONGEST_S = 0.1, 2.0
TOLD_S = 30.0


class Away(RuntimeError):
    """The database was still away when the wait was given up."""


def patiently(work: Callable[[], Value], given_up: threading.Event) -> Value:
    """``work``'s result, however long the database is away. It is tried anew as a whole: let it be one transaction.

    Raises:
        Away: when ``given_up`` is set meanwhile.
    """
    wait_s, told = SHORTEST_S, -TOLD_S
    while True:
        try:
            return work()
        except StoreUnavailable as error:
            if time.monotonic() - told > TOLD_S:
                told = time.monotonic()
                logger.warning("waiting: %s", error)
            if given_up.wait(wait_s):
                raise Away(str(error)) from error
            wait_s = min(wait_s * 2, LONGEST_S)


def patiently_stored(store: Store, work: Callable[[Session], Value], given_up: threading.Event) -> Value:
    """The same of ``work`` in a transaction of its own."""

    def unit() -> Value:
        with store.transaction() as session:
            return work(session)

    return patiently(unit, given_up)
