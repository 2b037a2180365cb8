"""``shardproof schedules``: matrices that a served controller submits again and again."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console
from rich.table import Table

from service.commands.inputs import read_bytes
from service.commands.key_header import authorization
from service.commands.refused import Refused
from service.domain.document import parse
from service.domain.errors import MatrixError
from service.domain.schedule import Missed

app = typer.Typer(no_args_is_help=True, help="Matrices that a served controller submits at given times.")
console = Console(width=None if sys.stdout.isatty() else 160)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a schedule.")]
Url = Annotated[str, typer.Option("--url", help="Where the controller is served.", envvar="SHARDPROOF_URL")]

HERE = "http://127.0.0.1:8910"
SUBMIT_TIMEOUT_S = 600.0
PAGE = 100


@app.command()
def add(
    name: Name,
    matrix: Annotated[Path, typer.Argument(metavar="MATRIX", help="Matrix file, YAML or JSON.")],
    cron: Annotated[str, typer.Option("--cron", help="Minute, hour, day of month, month, day of week.")],
    timezone: Annotated[str, typer.Option("--timezone", help="Whose clock: a name of the IANA database.")] = "UTC",
    missed: Annotated[
        Missed, typer.Option("--missed", help="What is done about times that were missed.")
    ] = Missed.SKIP,
    suspended: Annotated[bool, typer.Option("--suspended", help="Do not fire yet.")] = False,
    url: Url = HERE,
) -> None:
    """Submit a matrix at the times of a cron expression."""
    body = {
        "name": name,
        "cron": cron,
        "timezone": timezone,
        "missed": missed.value,
        "suspended": suspended,
        "matrix": _read(matrix),
    }
    with _client(url) as client:
        _say(_next(_ask(client, "POST", "/v1/schedules", json=body)))


@app.command("list")
def list_schedules(url: Url = HERE) -> None:
    """Show the schedules of a controller."""
    table = Table("name", "cron", "timezone", "missed", "next")
    with _client(url) as client:
        for item in _all(client):
            table.add_row(item["name"], item["cron"], item["timezone"], item["missed"], _next(item))
    console.print(table)


@app.command()
def show(name: Name, url: Url = HERE) -> None:
    """Show what a schedule fired lately, and which sweep came of it."""
    with _client(url) as client:
        found = _ask(client, "GET", f"/v1/schedules/{name}")
        fires = _ask(client, "GET", f"/v1/schedules/{name}/fires")["fires"]
    _say(f"{found['name']}: {found['cron']} ({found['timezone']}), missed: {found['missed']}, next: {_next(found)}")
    table = Table("due", "cause", "state", "sweep")
    for fire in fires:
        outcome = fire["sweep_id"] or fire["detail"] or ""
        table.add_row(fire["due_at"] or fire["claimed_at"], fire["cause"], fire["state"], outcome)
    console.print(table)


@app.command()
def suspend(name: Name, url: Url = HERE) -> None:
    """Let a schedule rest. Its times pass unserved, and do not count as missed."""
    _change(name, {"suspended": True}, url)


@app.command()
def resume(name: Name, url: Url = HERE) -> None:
    """Let a schedule go on, from its next time."""
    _change(name, {"suspended": False}, url)


@app.command()
def run(name: Name, url: Url = HERE) -> None:
    """Submit the sweep of a schedule now and print its id."""
    with _client(url) as client:
        fire = _ask(client, "POST", f"/v1/schedules/{name}/fires", timeout=SUBMIT_TIMEOUT_S)
    if fire["sweep_id"] is None:
        raise Refused(f"schedule {name}: {fire['detail']}")
    _say(fire["sweep_id"])


@app.command()
def delete(name: Name, url: Url = HERE) -> None:
    """Delete a schedule. Its sweeps stay."""
    with _client(url) as client:
        _ask(client, "DELETE", f"/v1/schedules/{name}", headers=_seen(client, name))


def _change(name: str, changes: dict[str, Any], url: str) -> None:
    with _client(url) as client:
        changed = _ask(client, "PATCH", f"/v1/schedules/{name}", json=changes, headers=_seen(client, name))
    _say(_next(changed))


def _seen(client: httpx.Client, name: str) -> dict[str, str]:
    response = _send(client, "GET", f"/v1/schedules/{name}")
    return {"If-Match": response.headers["ETag"]}


def _all(client: httpx.Client) -> Iterable[dict[str, Any]]:
    after: str | None = ""
    while after is not None:
        page = _ask(client, "GET", "/v1/schedules", params={"limit": PAGE, "after": after})
        yield from page["schedules"]
        after = page["next"]


def _next(schedule: dict[str, Any]) -> str:
    return "suspended" if schedule["suspended"] else str(schedule["next_at"])


def _read(path: Path) -> Any:
    try:
        return parse(read_bytes(path).decode()).tree
    except UnicodeDecodeError as error:
        raise Refused(f"{path}: byte {error.start} is not UTF-8; save the matrix as UTF-8 text") from error
    except MatrixError as error:
        raise Refused("\n".join(f"{path}: {problem}" for problem in error.problems)) from error


def _client(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, headers=authorization())


def _ask(client: httpx.Client, method: str, path: str, **options: Any) -> dict[str, Any]:
    response = _send(client, method, path, **options)
    return dict(response.json()) if response.content else {}


def _send(client: httpx.Client, method: str, path: str, **options: Any) -> httpx.Response:
    try:
        response = client.request(method, path, **options)
    except httpx.HTTPError as error:
        raise Refused(f"{client.base_url} does not answer ({error}); is `shardproof serve` running there?") from error
    if response.is_error:
        raise Refused(f"{client.base_url}: {_words(response)}")
    return response


def _words(response: httpx.Response) -> str:
    try:
        problem = response.json()
        items = [f"{item.get('path', '')}: {item['detail']}" for item in problem.get("errors", [])]
        return "\n".join([f"{problem['title']}: {problem['detail']}", *items])
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"status {response.status_code}, and no reason given"


def _say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
