"""``shardproof keys``, and where ``shardproof serve`` may listen because of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from api.client import make_client
from typer.testing import CliRunner

from service.cli import app
from service.commands.key_header import authorization
from service.commands.refused import Refused
from service.commands.serve import check_address
from service.domain.keys import Scope
from service.keyring import Keyring
from service.settings import Settings
from service.store import Store, open_store
from service.store.repositories import audit


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("SHARDPROOF_HOME", str(tmp_path))
    monkeypatch.delenv("SHARDPROOF_DATABASE_URL", raising=False)
    return Settings()


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    store = open_store(settings.store_url)
    yield store
    store.close()


def keys(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["keys", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def refused(*arguments: str) -> str:
    with pytest.raises(Refused) as caught:
        keys(*arguments)
    return str(caught.value)


def test_a_key_is_made_listed_used_and_revoked(store: Store) -> None:
    key = keys("create", "nightly CI", "--scope", "submit", "--expires", "8w").strip()
    key_id = key.split("_")[1]
    assert re.search(rf"{key_id}\W+nightly CI\W+submit\W+\d{{4}}-.*UTC\W+\d{{4}}-.*UTC\W+never", keys("list"))
    assert key[-43:] not in keys("list")
    client = make_client(store)
    headers = {"Authorization": f"Bearer {key}"}
    assert client.post("/v1/sweeps", json={"name": "x"}, headers=headers).status_code == 201
    keys("revoke", key_id)
    assert client.get("/v1/sweeps", headers=headers).status_code == 401
    assert re.search(rf"{key_id}.*revoked", keys("list"))
    with store.reading() as session:
        done = [(item.actor, item.action) for item in audit.list_audit(session, 10)]
    assert done[0] == ("command line", "keys revoke")
    assert done[-1] == ("command line", "keys create")


def test_a_key_lasts_ninety_days_unless_something_else_is_said(settings: Settings) -> None:
    keys("create", "CI", "--scope", "read")
    day = datetime.now(UTC) + timedelta(days=90)
    assert f"{day:%Y-%m-%d}" in keys("list")


def test_more_keys_than_a_page_are_all_listed(store: Store) -> None:
    for number in range(105):
        Keyring(store).create(f"key-{number}", Scope.READ, None, "test")
    listed = keys("list")
    assert all(f" key-{number} " in listed for number in range(105))


def test_what_cannot_be_used_is_refused(settings: Settings) -> None:
    assert "90d" in refused("create", "CI", "--scope", "read", "--expires", "soon")
    assert "NAME" in refused("create", " ", "--scope", "read")
    assert "NAME" in refused("create", "x" * 101, "--scope", "read")
    assert "keys list" in refused("revoke", "nope")
    assert CliRunner().invoke(app, ["keys", "create", "CI", "--scope", "root"]).exit_code == 2
    assert CliRunner().invoke(app, ["keys", "create", "CI"]).exit_code == 2


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "build.example", ""])
def test_others_are_let_in_only_once_a_key_opens_something(store: Store, host: str) -> None:
    settings = Settings(host=host)
    with pytest.raises(Refused, match="shardproof keys create"):
        check_address(settings, store)
    keyring = Keyring(store)
    expired = Keyring(store, now=lambda: datetime.now(UTC) - timedelta(days=2))
    expired.create("old", Scope.ADMIN, timedelta(days=1), "test")
    key, _ = keyring.create("lost", Scope.ADMIN, None, "test")
    keyring.revoke(key.id)
    with pytest.raises(Refused, match="no key that opens"):
        check_address(settings, store)
    keyring.create("good", Scope.READ, None, "test")
    check_address(settings, store)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_this_machine_alone_needs_none(store: Store, host: str) -> None:
    check_address(Settings(host=host), store)


def test_commands_send_the_key_of_their_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHARDPROOF_KEY", raising=False)
    assert authorization() == {}
    monkeypatch.setenv("SHARDPROOF_KEY", " sp_x_y\n")
    assert authorization() == {"Authorization": "Bearer sp_x_y"}
