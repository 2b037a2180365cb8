from __future__ import annotations

from collections.abc import Iterator

import pytest

from api.client import Client, StoringController, make_client
from service.store import Store, open_store


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Store]:
    store = open_store(sqlite_url)
    yield store
    store.close()


@pytest.fixture
def controller(store: Store) -> StoringController:
    return StoringController(store)


@pytest.fixture
def client(store: Store, controller: StoringController) -> Client:
    return make_client(store, controller)
