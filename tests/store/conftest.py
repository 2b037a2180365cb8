from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.store import Store, open_store


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'shardproof.db'}"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(url)
    yield store
    store.close()
