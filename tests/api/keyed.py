"""A client that shows a key of each scope."""

from __future__ import annotations

from datetime import timedelta

from service.domain.keys import Scope
from service.keyring import Keyring
from service.store import Store

TEST = "test"


def make_key(store: Store, scope: Scope = Scope.ADMIN, name: str = "a key", life: timedelta | None = None) -> str:
    """A new key, as its owner is given it."""
    return Keyring(store).create(name, scope, life, TEST)[1]


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}
