from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.store import Store, open_store

from .receiver import Receiver, receiving


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'shardproof.db'}")
    yield store
    store.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver
