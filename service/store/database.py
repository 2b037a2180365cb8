"""The database: opening it, bringing its tables up to date, and units of work.

store = open_store(settings.store_url)
with store.transaction() as session:      # commits at the end, rolls back on an exception
    repositories.end_sweep(session, sweep_id)
with store.reading() as session:          # sees one consistent state, never waits for a writer
    repositories.get_sweep(session, sweep_id)

Units of work that write come one after the other on every database, see docs/decisions/0018.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import URL, Connection, Engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, NoSuchModuleError
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from service.store import notes
from service.store.plain import dump_json, load_json
from service.store.trouble import BUSY_TIMEOUT_MS, StoreError, StoreUnavailable, Trouble, trouble_of

logger = logging.getLogger(__name__)

MIGRATIONS = Path(__file__).parent / "migrations"
CONNECT_TIMEOUT_S = 10
_READ_ONLY = "shardproof_read_only"
_WRITER_LOCK = 0x5368617264
"""Number of the lock that a writer on PostgreSQL holds."""

_IDLE_WRITER_MS = 60_000
"""A writer that says nothing for so long has its transaction ended: it may hang, and the others wait for it."""

_DRIVER = "postgresql+psycopg"


class Store:
    """A database whose tables are up to date. Safe to share between threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reader = engine.execution_options(**_reader_options(engine))
        self._observers: list[notes.Observer] = []

    def observe(self, observer: notes.Observer) -> None:
        """Call ``observer`` with all that units of work note, once they are committed, in the thread that did it."""
        self._observers.append(observer)

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """A unit of work that writes. Keep it short: there is one writer at a time, the others wait for it.

        Raises:
            StoreUnavailable: when the database does not take it; nothing of it is stored then.
        """
        with self._told(), Session(self._engine) as session:
            with session.begin():
                yield session
            self._tell(notes.noted(session))

    def _tell(self, noted: list[object]) -> None:
        for observer in self._observers:
            for what in noted:
                try:
                    observer(what)
                except Exception:
                    # It is committed; that somebody who watches fails changes nothing about it.
                    logger.exception("observer of the store")

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A unit of work that only reads; whatever it changes is rolled back, or refused.

        Raises:
            StoreUnavailable: when the database does not answer.
        """
        with self._told(but=Trouble.READ_ONLY), Session(self._reader, autoflush=False) as session:
            yield session

    @contextmanager
    def _told(self, but: Trouble | None = None) -> Iterator[None]:
        """Errors of the database in words. One that only a mistake in the unit of work explains stays as it is."""
        try:
            yield
        except (DBAPIError, sqlalchemy.exc.TimeoutError) as error:
            trouble = trouble_of(error)
            if trouble is None or trouble is but:
                raise
            cause = error.orig if isinstance(error, DBAPIError) else error
            raise StoreUnavailable(trouble, _shown(str(self._engine.url)), cause) from error

    def close(self) -> None:
        """Close every pooled connection."""
        self._engine.dispose()


def open_store(url: str) -> Store:
    """Create the database if there is none, upgrade its tables, and open it.

    Raises:
        StoreError: if it cannot be opened, or was written by a newer version.
    """
    upgrade(url)
    return Store(create_engine(url))


def create_engine(url: str) -> Engine:
    """An engine for ``url``: one writer at a time, the others wait; on SQLite also a log ahead and foreign keys."""
    if make_url(url).get_backend_name() in ("postgresql", "postgres"):
        return _postgresql(make_url(url))
    engine = sqlalchemy.create_engine(url, json_serializer=dump_json, json_deserializer=load_json)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _postgresql(url: URL) -> Engine:
    """Connections are tried before each use: one that broke while nobody used it is none of the user's business."""
    named = url if "+" in url.drivername else url.set(drivername=_DRIVER)
    timeout = {} if "connect_timeout" in url.query else {"connect_timeout": CONNECT_TIMEOUT_S}
    engine = sqlalchemy.create_engine(
        named,
        json_serializer=dump_json,
        json_deserializer=load_json,
        pool_pre_ping=True,
        connect_args=timeout,
    )
    event.listen(engine, "begin", _begin_postgresql)
    event.listen(engine, "checkin", _forget_read_only)
    return engine


def _reader_options(engine: Engine) -> dict[str, Any]:
    if engine.dialect.name != "postgresql":
        return {_READ_ONLY: True}
    # PostgreSQL's default shows each statement what was committed before it: a report would mix two states.
    return {_READ_ONLY: True, "isolation_level": "REPEATABLE READ"}


def upgrade(url: str) -> None:
    """Bring the tables at ``url`` to the newest revision, in one transaction.

    Raises:
        StoreError: see ``open_store``.
    """
    try:
        _make_folder(url)
        engine = create_engine(url)
    except (sqlalchemy.exc.ArgumentError, NoSuchModuleError, ImportError, OSError) as error:
        raise StoreError(_cannot_open(url, error)) from error
    try:
        with engine.begin() as connection:
            if MigrationContext.configure(connection).get_current_heads() != _newest():
                command.upgrade(alembic_config(connection), "head")
    except DBAPIError as error:
        raise StoreError(_cannot_open(url, error.orig)) from error
    except CommandError as error:
        raise StoreError(
            f"database {_shown(url)} was written by another version of Shardproof ({error}); "
            "use that version or a newer one, or set SHARDPROOF_HOME to another folder"
        ) from error
    finally:
        engine.dispose()


@cache
def _newest() -> tuple[str, ...]:
    """The revision that this version makes. Once per process: each migration is a module that Alembic loads anew."""
    return tuple(ScriptDirectory.from_config(_config()).get_heads())


def alembic_config(connection: Connection) -> Config:
    """Alembic's settings for running this package's migrations on ``connection``."""
    config = _config()
    config.attributes["connection"] = connection
    return config


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config


def _prepare_sqlite(connection: sqlite3.Connection, _: ConnectionPoolEntry) -> None:
    # Python's driver opens transactions on its own, too late and as readers; `_begin_sqlite` does it instead.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    _write_ahead(cursor)
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _write_ahead(cursor: sqlite3.Cursor) -> None:
    # The busy timeout does not cover this switch, and processes that open a new file at once are in each other's way.
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that reads first and writes later is refused when another wrote in between; one that asks for the
    # write lock at its start waits for it instead.
    read_only = connection.get_execution_options().get(_READ_ONLY, False)
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")


def _forget_read_only(connection: Any, _: ConnectionPoolEntry) -> None:
    # What SQLAlchemy sets back after a reader says "read and write", whatever the database's own default is.
    if connection is not None and not connection.closed:
        connection.read_only = None


def _begin_postgresql(connection: Connection) -> None:
    # Ids of events are cursors: given out by writers side by side, a smaller one could show after a larger one had
    # been read, and be skipped for ever.
    if connection.get_execution_options().get(_READ_ONLY, False):
        # Not by an option of the connection: given back, it would ask for a transaction that writes ever after, also
        # where the server has been told that nobody may.
        connection.exec_driver_sql("SET TRANSACTION READ ONLY")
    else:
        connection.exec_driver_sql(
            f"SET LOCAL lock_timeout = {BUSY_TIMEOUT_MS}; "
            f"SET LOCAL idle_in_transaction_session_timeout = {_IDLE_WRITER_MS}; "
            f"SELECT pg_advisory_xact_lock({_WRITER_LOCK})"
        )


def _make_folder(url: str) -> None:
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite" and parsed.database not in (None, "", ":memory:"):
        Path(str(parsed.database)).parent.mkdir(parents=True, exist_ok=True)


def _cannot_open(url: str, error: object) -> str:
    said = " ".join(str(error).split())
    return (
        f"cannot open database {_shown(url)}: {said}; check SHARDPROOF_DATABASE_URL and SHARDPROOF_HOME, "
        "and that this user may write there"
    )


def _shown(url: str) -> str:
    try:
        return make_url(url).render_as_string(hide_password=True)
    except sqlalchemy.exc.ArgumentError:
        return repr(url)
