"""``shardproof webhooks``: who is told of what happens. Works on the database itself, as ``keys`` does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import urlsplit

import typer
from rich.console import Console
from rich.table import Table

from service.alerts.making import make_webhook
from service.commands.refused import Refused
from service.domain.addresses import BadAddress
from service.domain.alerts import TOLD
from service.domain.notices import NoticeKind
from service.domain.webhooks import WebhookKind
from service.settings import Settings
from service.store import Store, open_store
from service.store.alert_records import Webhook
from service.store.records import UnknownRecord
from service.store.repositories import alerts, audit
from service.store.repositories.audit import NewAudit

OPERATOR = "command line"
PAGE = 100

app = typer.Typer(no_args_is_help=True, help="Who is told of regressions, failures and hangs.")
console = Console(width=160)

Id = Annotated[str, typer.Argument(metavar="ID", help="As `shardproof webhooks list` shows it.")]


@app.command("create")
def create_webhook(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where messages are sent, https or http.")],
    kind: Annotated[WebhookKind, typer.Option("--kind", help="What it takes.")] = WebhookKind.GENERIC,
    kinds: Annotated[
        list[NoticeKind] | None, typer.Option("--of", help="Of what it is told; may be given again.")
    ] = None,
) -> None:
    """Have somebody told of what happens from now on; prints what messages are signed with, this once."""
    with _opened() as store:
        try:
            webhook = make_webhook(store, Settings(), url, kind, kinds or TOLD, OPERATOR)
        except BadAddress as error:
            raise Refused(f"URL: {error}") from error
        _note(store, "webhooks create", webhook.id)
    console.print(webhook.id, webhook.secret, markup=False, highlight=False, soft_wrap=True)


@app.command("list")
def list_webhooks() -> None:
    """Show who is told of what, newest first, and what came of the last message."""
    table = Table("id", "host", "kind", "told of", "created", "last message")
    with _opened() as store, store.reading() as session:
        before: str | None = None
        while page := alerts.list_webhooks(session, PAGE, before):
            for webhook in page:
                sent = alerts.list_deliveries(session, webhook.id, 1)
                last = f"{sent[0].state} {sent[0].detail or ''}".strip() if sent else "none yet"
                table.add_row(*_row(webhook), last)
            before = page[-1].id
    console.print(table)


@app.command("delete")
def delete_webhook(webhook_id: Id) -> None:
    """Tell it no more."""
    with _opened() as store:
        try:
            with store.transaction() as session:
                alerts.delete_webhook(session, webhook_id)
        except UnknownRecord as error:
            raise Refused(f"{error}; `shardproof webhooks list` shows those that are there") from error
        _note(store, "webhooks delete", webhook_id)


def _row(webhook: Webhook) -> list[str]:
    host = urlsplit(webhook.url).hostname or ""
    return [webhook.id, host, str(webhook.kind), ", ".join(webhook.kinds), f"{webhook.created_at:%Y-%m-%d %H:%M}"]


def _note(store: Store, action: str, webhook_id: str) -> None:
    with store.transaction() as session:
        audit.add_audit(session, NewAudit(datetime.now(UTC), None, OPERATOR, action, f"/v1/webhooks/{webhook_id}"))


@contextmanager
def _opened() -> Iterator[Store]:
    store = open_store(Settings().store_url)
    try:
        yield store
    finally:
        store.close()
