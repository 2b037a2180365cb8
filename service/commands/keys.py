"""``shardproof keys``: who may reach a served controller. Works on the database itself, so it needs no key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from service.commands.refused import Refused
from service.domain.keys import DEFAULT_LIFE, ApiKey, Scope, lifetime
from service.keyring import Keyring
from service.settings import Settings
from service.store import Store, open_store
from service.store.records import UnknownRecord
from service.store.repositories import access, audit
from service.store.repositories.audit import NewAudit

OPERATOR = "command line"
LONGEST_NAME = 100
PAGE = 100

app = typer.Typer(no_args_is_help=True, help="API keys of a served controller.")
console = Console(width=160)


@app.command("create")
def create_key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is, or what it is for.")],
    scope: Annotated[Scope, typer.Option("--scope", help="What it may do; each may do what those before it may.")],
    expires: Annotated[
        str, typer.Option("--expires", help="Hours, days or weeks from now, as in 12h, 90d, 8w; or never.")
    ] = DEFAULT_LIFE,
) -> None:
    """Make a key and print it. It is shown this once: only a hash of it is stored."""
    try:
        life = lifetime(expires)
    except ValueError as error:
        raise Refused(f"--expires: {error}") from error
    if not name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
        raise Refused(f"NAME: a key's name has 1 to {LONGEST_NAME} printable characters")
    with _opened() as store:
        key, text = Keyring(store).create(name, scope, life, OPERATOR)
        _note(store, "keys create", key.id)
    console.print(text, markup=False, highlight=False, soft_wrap=True)


@app.command("list")
def list_keys() -> None:
    """Show the keys, newest first, those that open nothing any more included."""
    table = Table("id", "name", "scope", "created", "expires", "last used", "")
    now = datetime.now(UTC)
    with _opened() as store:
        for key in _all(store):
            times = [_time(moment) for moment in (key.created_at, key.expires_at, key.last_used_at)]
            table.add_row(key.id, key.name, key.scope, *times, _state(key, now))
    console.print(table)


@app.command("revoke")
def revoke_key(key: Annotated[str, typer.Argument(metavar="ID", help="The key's id, as `list` shows it.")]) -> None:
    """Have a key open nothing from now on, in controllers that run as well."""
    with _opened() as store:
        try:
            Keyring(store).revoke(key)
        except UnknownRecord as error:
            raise Refused(f"{error}; `shardproof keys list` shows those that are") from error
        _note(store, "keys revoke", key)


@contextmanager
def _opened() -> Iterator[Store]:
    store = open_store(Settings().store_url)
    try:
        yield store
    finally:
        store.close()


def _all(store: Store) -> Iterator[ApiKey]:
    before: str | None = None
    while True:
        with store.reading() as session:
            page = access.list_keys(session, PAGE, before)
        yield from page
        if len(page) < PAGE:
            return
        before = page[-1].id


def _note(store: Store, action: str, key_id: str) -> None:
    with store.transaction() as session:
        audit.add_audit(session, NewAudit(datetime.now(UTC), None, OPERATOR, action, f"/v1/keys/{key_id}"))


def _time(moment: datetime | None) -> str:
    return "never" if moment is None else f"{moment:%Y-%m-%d %H:%M} UTC"


def _state(key: ApiKey, now: datetime) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "" if key.usable(now) else "expired"
