from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.store import Store, open_store

DATABASES = ("sqlite", "postgresql")


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without tables, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'shardproof.db'}"
    return str(request.getfixturevalue("empty_postgres_url"))


@pytest.fixture(params=DATABASES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An open store on each kind of database in turn."""
    sqlite = f"sqlite:///{tmp_path / 'store.db'}"
    store = open_store(sqlite if request.param == "sqlite" else request.getfixturevalue("postgres_url"))
    yield store
    store.close()
