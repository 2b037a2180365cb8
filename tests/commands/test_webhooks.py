"""``shardproof webhooks`` and ``shardproof comment``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from alerts.told import notice, tell
from api import server
from api.client import StoringController
from store.samples import SWEEP, add_sweep
from typer.testing import CliRunner

from service.app import create_app
from service.cli import app
from service.client import ClientError
from service.commands.refused import Refused
from service.settings import Settings
from service.store import Store, open_store
from service.store.repositories import alerts, audit

URL = "https://hooks.example/secretpart"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("SHARDPROOF_HOME", str(tmp_path))
    for name in ("DATABASE_URL", "PUBLIC_URL", "KEY"):
        monkeypatch.delenv(f"SHARDPROOF_{name}", raising=False)
    return Settings()


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    store = open_store(settings.store_url)
    yield store
    store.close()


def command(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_webhook_is_made_listed_and_deleted(store: Store) -> None:
    webhook_id, secret = command("webhooks", "create", URL, "--kind", "slack", "--of", "hang").split()
    assert secret.startswith("whsec_")
    listed = command("webhooks", "list")
    assert re.search(rf"{webhook_id}\W+hooks.example\W+slack\W+hang\W+\d{{4}}-.*none yet", listed)
    assert "secretpart" not in listed
    command("webhooks", "delete", webhook_id)
    assert webhook_id not in command("webhooks", "list")
    with store.reading() as session:
        done = [(item.action, item.target) for item in audit.list_audit(session, 10)]
    assert done == [(f"webhooks {what}", f"/v1/webhooks/{webhook_id}") for what in ("delete", "create")]


def test_what_cannot_be_used_is_refused(store: Store) -> None:
    for url, why in (("file:///etc/passwd", "https"), ("http://127.0.0.1/", "SHARDPROOF_ALERTS_TO_PRIVATE_ADDRESSES")):
        with pytest.raises(Refused, match=why):
            command("webhooks", "create", url)
    with pytest.raises(Refused, match="webhooks list"):
        command("webhooks", "delete", "nope")
    with store.reading() as session:
        assert alerts.list_webhooks(session, 10) == []


def test_a_comment_is_that_of_the_store_or_of_a_controller(store: Store, settings: Settings) -> None:
    add_sweep(store)
    tell(store, notice(what="slow [*] | <b>"))
    local = command("comment", SWEEP)
    assert local.startswith("### Shardproof: quickstart\n\n… 0 of 2 cells ok")
    assert "slow \\[\\*\\] \\| &lt;b&gt;" in local
    with server.serving(create_app(settings, store, StoringController(store))) as url:
        served = command("comment", SWEEP, "--url", url)
        assert served.startswith(f"### Shardproof: [quickstart]({url}/sweeps/{SWEEP})")
        with pytest.raises(ClientError, match="there is no sweep"):
            command("comment", "nope", "--url", url)
    with pytest.raises(Refused, match="there is no sweep"):
        command("comment", "nope")
