"""Wait for a database that is away for a while: its server restarts, its disk is full, another process writes long."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

logger = logging.getLogger(__name__)

Value = TypeVar("Value")

SHORTEST_S, LONGEST_S = 0.1, 2.0
TOLD_S = 30.0

_PASSES = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
)
"""What SQLite says of a state of affairs, not of a mistake in a statement."""


class Away(RuntimeError):
    """The database was still away when the wait was given up."""


def passes(error: Exception) -> bool:
    """May the same be tried again later, with another outcome?"""
    if isinstance(error, PoolTimeout | InterfaceError):
        return True
    if not isinstance(error, DBAPIError):
        return False
    if isinstance(error.orig, sqlite3.Error):
        return getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in _PASSES
    return error.connection_invalidated or isinstance(error, OperationalError)


def patiently(work: Callable[[], Value], given_up: threading.Event) -> Value:
    """``work``'s result, however long the database is away. It is tried anew as a whole: let it be one transaction.

    Raises:
        Away: when ``given_up`` is set meanwhile.
    """
    wait_s, told = SHORTEST_S, -TOLD_S
    while True:
        try:
            return work()
        except Exception as error:
            if not passes(error):
                raise
            if time.monotonic() - told > TOLD_S:
                told = time.monotonic()
                logger.warning("the database is away, and is waited for: %s", str(error).splitlines()[0])
            if given_up.wait(wait_s):
                raise Away(str(error)) from error
            wait_s = min(wait_s * 2, LONGEST_S)
