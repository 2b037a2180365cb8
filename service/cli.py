"""``shardproof``: the command line.

Exit status: 0 every cell ok, 1 some cell not, 2 the input was wrong (nothing was started).
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError
from rich.console import Console
from rich.markup import escape

from service import console as show
from service import doctor as diagnosis
from service import plot
from service.bench import NAMES as BENCHES
from service.bench import UnknownBench, run_bench
from service.client import ClientError
from service.commands import keys, remote, schedules, webhooks
from service.commands.comment import comment
from service.commands.inputs import read_bytes
from service.commands.refused import Refused
from service.dashboard import render_static
from service.dispatch import engines, questions
from service.dispatch.plan import plan as make_plan
from service.dispatch.serving import running, serving
from service.domain.document import Document, parse
from service.domain.errors import MatrixError
from service.domain.startup import NotMeasured
from service.exports.baselines import with_baselines
from service.matrices import quickstart
from service.report import stored_report
from service.selftest import selftest as run_selftest
from service.selftest import succeeded
from service.settings import Settings
from service.settings_sources import SettingsProblem, explained
from service.store import Store, StoreError, open_store
from workers.environments.shelf import shelved

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Prove the vLLM configurations you serve.")
environments = typer.Typer(no_args_is_help=True, help="Engine environments that were built on this machine.")
app.add_typer(environments, name="environments")
app.add_typer(schedules.app, name="schedules")
app.add_typer(keys.app, name="keys")
app.add_typer(webhooks.app, name="webhooks")
console = Console(width=None if sys.stdout.isatty() else 160)
errors = Console(stderr=True)

MatrixFile = Annotated[Path, typer.Argument(metavar="MATRIX", help="Matrix file, YAML or JSON.")]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the report to this file as well.")]
Url = Annotated[str, typer.Option("--url", help="Where the controller is served.", envvar="SHARDPROOF_URL")]

Value = TypeVar("Value")

SECONDS_OF_A_DAY = 86_400.0


def main() -> None:
    """Entry point: refusals become exit status 2, without a traceback."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    # A build takes up to minutes in which nothing else is said.
    logging.getLogger(engines.__name__).setLevel(logging.INFO)
    try:
        app()
    except (
        Refused,
        ClientError,
        SettingsProblem,
        SettingsError,
        questions.EngineEnvironmentError,
        StoreError,
    ) as error:
        _refuse(str(error))
    except ValidationError as error:
        if error.title != Settings.__name__:
            raise
        _refuse(explained(error))


def _refuse(why: str) -> NoReturn:
    errors.print(escape(why), style="red", highlight=False, soft_wrap=True)
    sys.exit(2)


@app.command()
def demo(json_file: JsonFile = None) -> None:
    """Run the quickstart matrix."""
    _run(quickstart(), None, json_file)


@app.command()
def run(
    matrix: MatrixFile,
    cell: Annotated[str | None, typer.Option("--cell", help="Run the cell of this name alone.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Run a matrix here: an embedded controller, a local Ray, SQLite. Needs no server."""
    _run(matrix, cell, json_file)


def _run(matrix: Path, cell: str | None, json_file: Path | None) -> None:
    settings = Settings()
    document = _read(matrix)
    store = open_store(settings.store_url)
    try:
        with running(settings, store, alone=True) as controller:
            sweep_id = _refusing(matrix, lambda: controller.submit(document, cell))
            show.follow(store, sweep_id, console)
            controller.wait()
        report = _keep(store, settings, sweep_id, str(matrix), json_file)
    finally:
        store.close()
    _exit(report)


def _keep(store: Store, settings: Settings, sweep_id: str, matrix: str, json_file: Path | None) -> dict[str, Any]:
    """Print the report and write it, and its page, to disk."""
    with store.reading() as session:
        report = stored_report(session, sweep_id, matrix)
        content = render_static(with_baselines(session, report))
    show.print_report(report, console)
    folder = settings.reports_dir
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(report, indent=1)
    for path in (folder / f"{sweep_id}.json", json_file):
        if path is not None:
            path.write_text(text)
    page = folder / f"{sweep_id}.html"
    page.write_text(content)
    _say(f"report: {folder / f'{sweep_id}.json'}")
    _say(f"page:   {page}")
    _say(f"live:   shardproof serve, then http://{settings.host}:{settings.port}/sweeps/{sweep_id}")
    return report


def _exit(report: dict[str, Any]) -> None:
    summary = report["summary"]
    raise typer.Exit(0 if summary["ok"] == summary["cells"] else 1)


@app.command()
def plan(matrix: MatrixFile) -> None:
    """Expand and audit a matrix, and start nothing."""
    document, settings = _read(matrix), Settings()
    show.print_plan(_refusing(matrix, lambda: make_plan(document, settings)), console)


@app.command()
def serve() -> None:
    """Serve the REST API and the pages."""
    # The other commands start sooner without.
    import uvicorn

    from service.alerts.passes import Alerting, alerting
    from service.app import create_app
    from service.collector import spare_what_stays
    from service.commands.serve import check_address
    from service.dispatch.scheduler import scheduling
    from service.logs import configure
    from service.narration import narrate

    settings = Settings()
    configure(settings.log_format, settings.log_level)
    store = open_store(settings.store_url)
    store.observe(narrate)
    check_address(settings, store)
    with serving(settings, store) as controller:
        app = create_app(settings, store, controller)
        spare_what_stays()
        alerts = Alerting(store, settings, lambda: controller.leads)
        with scheduling(app.state.scheduler), alerting(alerts):
            uvicorn.run(app, host=settings.host, port=settings.port, root_path=settings.root_path, log_config=None)
    store.close()


for command in (remote.submit, remote.cancel, remote.rerun, remote.export, comment):
    app.command()(command)


@app.command()
def status(
    sweep: Annotated[str, typer.Argument(help="Id of a sweep.")],
    url: Annotated[str | None, typer.Option("--url", help="Ask this controller instead of the local store.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Show a sweep as it is now."""
    report = remote.report_of(sweep, url)
    show.print_report(report, console)
    if json_file is not None:
        json_file.write_text(json.dumps(report, indent=1))


@app.command()
def doctor() -> None:
    """Show the engine environment: versions, what each patch means there, guards."""
    for line in diagnosis.lines(questions.diagnose(Settings())):
        _say(line)


@environments.command("list")
def list_environments() -> None:
    """Show the engine environments that were built here."""
    show.print_environments(shelved(Settings().environments_dir), console)


@environments.command("gc")
def collect_environments(
    days: Annotated[float, typer.Option("--days", min=0, help="Delete what was not used for so many days.")] = 30.0,
) -> None:
    """Delete engine environments that nobody uses, and what was never built to its end."""
    gone = engines.collect(Settings(), days * SECONDS_OF_A_DAY)
    for item in gone:
        _say(f"deleted {show.environment_name(item)}")
    _say(f"{len(gone)} environments deleted, {sum(item.own_bytes for item in gone) / 1e9:.1f} GB freed")


@app.command()
def selftest(
    quick: Annotated[bool, typer.Option("--quick", help="Every kind of fault once, few healthy runs.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Put known faults into running engines and count what the comparison of residuals and the invariants find."""
    result = run_selftest(Settings(), quick)
    for row in result["rows"]:
        mark = "found" if row["placed"] else "misplaced" if row["found"] else "MISSED"
        place = f"at {row['site']}, rank {' or '.join(map(str, row['ranks']))}" if row["site"] else ""
        _say(f"{mark:9}  {row['kind']} {place}: {', '.join(row['found_by']) or 'nothing'}")
    for alarm in result["alarms"]:
        _say(f"ALARM      {alarm['run']}: {', '.join(alarm['details'] or alarm['by'])}")
    _say(f"found {result['found']} of {result['faults']}, placed right {result['placed']} of {result['faults']}")
    _say(f"false alarms {result['false_alarms']} of {result['healthy']} healthy runs")
    if json_file is not None:
        json_file.write_text(json.dumps(result, indent=1))
    raise typer.Exit(0 if succeeded(result) else 1)


@app.command()
def bench(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"What to measure: {', '.join(BENCHES)}.")],
    quick: Annotated[bool, typer.Option("--quick", help="Less: no engine (full-graph: four), or 100 cells.")] = False,
    deep: Annotated[bool, typer.Option("--deep", help="fallback: up to 14 layers unpatched, some minutes.")] = False,
    repeats: Annotated[
        int | None, typer.Option("--repeats", min=1, help="startup: how often, once by default.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Measure Shardproof itself, in the engine environment. Takes some minutes.

    What grows is plotted too; with --json the picture is written beside it, as SVG.
    """
    try:
        result = run_bench(name, Settings(), quick, deep, repeats)
    except (UnknownBench, NotMeasured) as error:
        raise Refused(str(error)) from error
    show.print_bench(result, console)
    plotted = plot.growth(result["rows"])
    if plotted is not None:
        console.print(plotted)
    if json_file is not None:
        json_file.write_text(json.dumps(result, indent=1))
        if plotted is not None:
            json_file.with_suffix(".svg").write_text(plot.svg(plotted, f"shardproof bench {name}"))


def _read(path: Path) -> Document:
    try:
        text = read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise Refused(f"{path}: byte {error.start} is not UTF-8; save the matrix as UTF-8 text") from error
    return _refusing(path, lambda: parse(text))


def _refusing(path: Path, work: Callable[[], Value]) -> Value:
    """``work``'s result; its problems become a refusal that names the file."""
    try:
        return work()
    except MatrixError as error:
        raise Refused("\n".join(f"{path}: {problem}" for problem in error.problems)) from error


def _say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
