from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from shutil import copyfile

import pytest

from service.store.database import upgrade
from service.store.local_postgres import PostgresServer, postgres_server

NUMBERS = count()
MIGRATED = "migrated"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first: they are shared out in order, and none is left over when all others are done."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """What was collected stays to the end; walked again and again it would take seconds of each process."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server, one for all tests of this process."""
    with postgres_server() as server:
        upgrade(server.create(MIGRATED))
        yield server


@pytest.fixture
def empty_postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """A database of its own, without tables."""
    name = f"test-{next(NUMBERS)}"
    yield postgres.create(name)
    postgres.drop(name)


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """A database of its own, with its tables."""
    name = f"test-{next(NUMBERS)}"
    yield postgres.create(name, MIGRATED)
    postgres.drop(name)


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite database with its tables, to be copied: that is quicker than to make them for each test."""
    path = tmp_path_factory.mktemp("sqlite") / "migrated.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
def sqlite_url(migrated_sqlite: Path, tmp_path: Path) -> str:
    """A database of its own, with its tables."""
    path = tmp_path / "shardproof.db"
    copyfile(migrated_sqlite, path)
    return f"sqlite:///{path}"


@pytest.fixture(scope="session")
def pictures(pytestconfig: pytest.Config) -> Path:
    """Where pictures of pages are kept. Git ignores it, and `make clean` takes it away."""
    return pytestconfig.rootpath / "build" / "screenshots"
