"""What keeps a database from working, told apart by what the operator has to do. Nothing that was under way is kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from enum import StrEnum

from sqlalchemy.exc import DBAPIError, TimeoutError

BUSY_TIMEOUT_MS = 30_000
"""So long a writer waits for the one before it."""


class StoreError(RuntimeError):
    """The database cannot be used. Says which one and what to do."""


class Trouble(StrEnum):
    """``READ_ONLY`` and ``DAMAGED`` last until somebody changes something; the others may pass by themselves."""

    READ_ONLY = "read-only"
    FULL = "full"
    BUSY = "busy"
    AWAY = "away"
    DAMAGED = "damaged"


class StoreUnavailable(StoreError):
    """The database is there in principle, but did not do this. The unit of work has left nothing behind.

    One exception: where the connection broke while a commit was under way (``AWAY``), it may have come through.
    """

    def __init__(self, trouble: Trouble, database: str, cause: object) -> None:
        said = str(cause).strip().splitlines()
        super().__init__(f"database {database} {_WHAT[trouble]}: {said[0] if said else cause}; {_TO_DO[trouble]}")
        self.trouble = trouble


_WHAT = {
    Trouble.READ_ONLY: "cannot be written",
    Trouble.FULL: "has no room left on its disk",
    Trouble.BUSY: f"was kept by other processes for longer than {BUSY_TIMEOUT_MS // 1000} s",
    Trouble.AWAY: "does not answer",
    Trouble.DAMAGED: "is damaged",
}
_TO_DO = {
    Trouble.READ_ONLY: "nothing was changed. Let this user write there, or set SHARDPROOF_DATABASE_URL to the primary",
    Trouble.FULL: "nothing was changed. Make room there and try again",
    Trouble.BUSY: "nothing was changed. Try again, and look for a process that hangs if that does not help",
    Trouble.AWAY: "try again, and see whether it runs and SHARDPROOF_DATABASE_URL leads there if that does not help",
    Trouble.DAMAGED: "nothing was changed. Stop the controller and put a copy back in its place",
}

_SQLITE: Mapping[int, Trouble] = {
    sqlite3.SQLITE_READONLY: Trouble.READ_ONLY,
    sqlite3.SQLITE_FULL: Trouble.FULL,
    sqlite3.SQLITE_BUSY: Trouble.BUSY,
    sqlite3.SQLITE_LOCKED: Trouble.BUSY,
    sqlite3.SQLITE_IOERR: Trouble.AWAY,
    sqlite3.SQLITE_CANTOPEN: Trouble.AWAY,
    sqlite3.SQLITE_CORRUPT: Trouble.DAMAGED,
    sqlite3.SQLITE_NOTADB: Trouble.DAMAGED,
}
"""By primary result code, the low byte: https://www.sqlite.org/rescode.html."""

_POSTGRESQL: Mapping[str, Trouble] = {
    "25006": Trouble.READ_ONLY,
    "53100": Trouble.FULL,
    "55P03": Trouble.BUSY,
    "40P01": Trouble.BUSY,
    "53300": Trouble.AWAY,
    "25P03": Trouble.AWAY,
    "XX001": Trouble.DAMAGED,
    "XX002": Trouble.DAMAGED,
}
"""By SQLSTATE: https://www.postgresql.org/docs/current/errcodes-appendix.html."""

_CONNECTION = ("08", "57P")
"""Classes of SQLSTATE: the connection broke, or the server stops."""


def trouble_of(error: Exception) -> Trouble | None:
    """What ``error`` says about the database; ``None`` when it is about what was asked of it."""
    if isinstance(error, TimeoutError):
        return Trouble.BUSY
    if not isinstance(error, DBAPIError):
        return None
    cause = error.orig
    if isinstance(cause, sqlite3.Error):
        # Errors that Python's own driver raises have no code.
        return _SQLITE.get(getattr(cause, "sqlite_errorcode", 0) & 0xFF)
    state = getattr(cause, "sqlstate", None)
    if state is None:
        return Trouble.AWAY if error.connection_invalidated or type(cause).__name__ == "OperationalError" else None
    return Trouble.AWAY if str(state).startswith(_CONNECTION) else _POSTGRESQL.get(str(state))
