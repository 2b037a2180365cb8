"""Commands to a served controller: submit, cancel, rerun, export."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from sqlalchemy.orm import Session

from service import console as show
from service.client import Client
from service.commands.inputs import read_bytes, write_bytes
from service.commands.key_header import VARIABLE
from service.commands.refused import Refused
from service.exports import EXPORTS, Format
from service.exports.baselines import with_baselines
from service.report import stored_report
from service.report_text import kept_report
from service.settings import Settings
from service.store import open_store
from service.store.records import UnknownRecord

HERE = "http://127.0.0.1:8910"

console = Console(width=None if sys.stdout.isatty() else 160)

MatrixFile = Annotated[Path, typer.Argument(metavar="MATRIX", help="Matrix file, YAML or JSON.")]
Sweep = Annotated[str, typer.Argument(metavar="SWEEP", help="Id of a sweep.")]
Url = Annotated[str, typer.Option("--url", help="Where the controller is served.", envvar="SHARDPROOF_URL")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for the end; the exit status tells how it went.")]
Junit = Annotated[
    Path | None,
    typer.Option("--junit", metavar="FILE", help="JUnit XML, for CI; needs --wait where there is one."),
]
Cells = Annotated[list[str] | None, typer.Option("--cell", help="This cell alone, by its name; may be given again.")]


def submit(
    matrix: MatrixFile,
    wait: Wait = False,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="With --wait: JUnit XML, for CI.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="With --wait: the report, as `run` writes it.")
    ] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="Sweeps of a higher one come first.")] = None,
    max_parallel: Annotated[
        int | None, typer.Option("--max-parallel", min=1, help="So many of its runs at once, at most.")
    ] = None,
    url: Url = HERE,
) -> None:
    """Send a matrix to a served controller and print the sweep's id."""
    if not wait and (junit or json_file):
        raise Refused("--junit and --json are of the finished sweep; add --wait")
    content = read_bytes(matrix)
    with _client(url) as client:
        sweep = client.submit(content, priority=priority, max_parallel=max_parallel)
        _say(sweep)
        if wait:
            _wait(client, sweep, junit, json_file)


def cancel(sweep: Sweep, cells: Cells = None, url: Url = HERE) -> None:
    """End a sweep that was submitted to a served controller, or cells of it, before it is done."""
    with _client(url) as client:
        for cell in [None] if not cells else _ids(client, sweep, cells):
            client.cancel(sweep, cell)


def rerun(sweep: Sweep, cells: Cells = None, wait: Wait = False, junit: Junit = None, url: Url = HERE) -> None:
    """Run those cells of an ended sweep again that are not ok, or those that are named."""
    if not wait and junit:
        raise Refused("--junit is of the finished sweep; add --wait")
    with _client(url) as client:
        client.rerun(sweep, _ids(client, sweep, cells) if cells else None)
        if wait:
            _wait(client, sweep, junit, None)


def export(
    sweep: Sweep,
    junit: Junit = None,
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="A row for each cell.")] = None,
    parquet: Annotated[Path | None, typer.Option("--parquet", metavar="FILE", help="The same with types.")] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="One page that opens offline.")] = None,
    url: Annotated[str | None, typer.Option("--url", help="Ask this controller instead of the local store.")] = None,
) -> None:
    """Write the report of a sweep in other forms."""
    wanted = {Format.JUNIT: junit, Format.CSV: csv, Format.PARQUET: parquet, Format.HTML: html}
    files = {form: path for form, path in wanted.items() if path is not None}
    if not files:
        raise Refused(f"nothing to write; add {', '.join(f'--{form} FILE' for form in wanted)}")
    if url is not None:
        with _client(url) as client:
            for form, path in files.items():
                write_bytes(path, client.export(sweep, form))
        return
    report = _stored(sweep, lambda session: with_baselines(session, kept_report(session, sweep)))
    for form, path in files.items():
        write_bytes(path, EXPORTS[form].write(report))


def report_of(sweep: str, url: str | None) -> dict[str, Any]:
    """The report of a sweep, from the controller at ``url`` or else from the local store."""
    if url is not None:
        with _client(url) as client:
            return client.report(sweep)
    return _stored(sweep, lambda session: stored_report(session, sweep))


def _stored(sweep: str, read: Callable[[Session], dict[str, Any]]) -> dict[str, Any]:
    """What ``read`` finds in the local store."""
    store = open_store(Settings().store_url)
    try:
        with store.reading() as session:
            return read(session)
    except UnknownRecord as error:
        raise Refused(f"{error}; `shardproof run` prints the id of each sweep") from error
    finally:
        store.close()


def _client(url: str) -> Client:
    return Client(url, os.environ.get(VARIABLE, "").strip() or None)


def _wait(client: Client, sweep: str, junit: Path | None, json_file: Path | None) -> None:
    """Follow the sweep to its end, write the files, and leave with DESIGN's exit status."""
    names = {cell["id"]: cell["name"] for cell in client.cells(sweep)}
    report = client.wait(sweep, lambda event: _tell(event, names))
    show.print_report(report, console)
    if junit is not None:
        write_bytes(junit, EXPORTS[Format.JUNIT].write(report))
    if json_file is not None:
        write_bytes(json_file, json.dumps(report, indent=1).encode())
    summary = report["summary"]
    raise typer.Exit(0 if summary["ok"] == summary["cells"] else 1)


def _tell(event: dict[str, Any], names: dict[str, str]) -> None:
    what = event["data"].get("name") or event["data"].get("outcome") or ""
    rank = "" if event["rank"] is None else f" rank {event['rank']}"
    _say(f"{names.get(event['cell_id'] or '', '')}  {event['arm'] or ''}{rank}  {event['kind']} {what}".strip())


def _ids(client: Client, sweep: str, names: list[str]) -> list[str]:
    """Ids of cells that are given by name, or by id."""
    known = {name: cell["id"] for cell in client.cells(sweep) for name in (cell["id"], cell["name"])}
    if missing := [name for name in names if name not in known]:
        raise Refused(f"sweep {sweep} has no cell {', '.join(map(repr, missing))}; `shardproof status` shows its cells")
    return [known[name] for name in names]


def _say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
