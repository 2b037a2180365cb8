from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.report import stored_report
from service.store import Store, open_store

from .sample import SWEEP, fill


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'shardproof.db'}")
    yield store
    store.close()


@pytest.fixture
def report(store: Store) -> dict[str, Any]:
    fill(store)
    with store.reading() as session:
        return stored_report(session, SWEEP)
