from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.store import Store, open_store

DATABASES = ("sqlite", pytest.param("postgresql", marks=pytest.mark.slow))
"""A database of PostgreSQL's own for each test takes longer than most tests."""


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without tables, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'shardproof.db'}"
    return str(request.getfixturevalue("empty_postgres_url"))


@pytest.fixture
def sqlite_store(sqlite_url: str) -> Iterator[Store]:
    """For what is asked of SQLite alone."""
    store = open_store(sqlite_url)
    yield store
    store.close()


@pytest.fixture(params=DATABASES)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """An open store on each kind of database in turn."""
    store = open_store(request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url"))
    yield store
    store.close()
