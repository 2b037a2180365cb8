"""``shardproof bench startup``: vLLM's own startup benchmark and a run of ours, in turn, of the same settings.

Either is a command of its own, timed from its start to its exit, under a supervisor that ends what it leaves. Ours is
the one that a user types, ``shardproof run MATRIX --json FILE``, in a new home folder. Built before the clock starts:
the model, a folder for both, and our description of the engine environment, which is kept until packages change.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from service.domain import startup_rows
from service.domain.startup import STARTS, NotMeasured, Ours, Peer, PeerStart, check_ours, check_peer, check_same
from service.settings import Settings
from service.store import open_store, repositories
from workers import cache_keys, environment
from workers.bench import LESS
from workers.processes import die_with_parent
from workers.protocol import Environment, Event
from workers.protocol import Settings as EngineSettings

NAME = "startup"
GOAL, AIM = 0.8, 0.5
"""Of the peer's wall time: what is owed, and what is aimed at."""

RANKS = 2
MODEL = "tiny:llama"
ENGINE: EngineSettings = {
    "dtype": "float32",
    "tensor_parallel_size": RANKS,
    "max_num_batched_tokens": 2048,
    "max_num_seqs": 128,
    "compilation_config.pass_config.enable_sp": True,
    # Without a threshold vLLM turns SP off for a model as small as this.
    "compilation_config.pass_config.sp_min_token_num": 1,
    # What a run sets of itself, see docs/matrix.md. Written, it holds for both.
    "skip_tokenizer_init": True,
    "enable_prefix_caching": False,
    "seed": 0,
    "kv_cache_memory_bytes": 128 * 2**20,
}
CHECKS = ("audit", "compile", "residual", "outputs")

ANNOUNCED = ("Measuring cold startup time", "Warming up for warm startup", "Measuring warm startup time")
"""With these lines the peer begins each of ``STARTS``."""

RESULTS = "STARTUP TIME BENCHMARK RESULTS"
"""And with this one it is through with the last."""

WATCHED_S = 3.0
TIMEOUT_S = 1800.0
TAIL = 40
EVENTS_AT_ONCE = 100_000

CacheKey = dict[str, str]


def startup(settings: Settings, repeats: int) -> dict[str, Any]:
    """Measure ``repeats`` times, the peer first and ours behind it each time. Some minutes for each.

    Raises:
        NotMeasured: when a side did not come through or measured something else than it should.
    """
    settings.home.mkdir(parents=True, exist_ok=True)
    peers, runs = [], []
    with tempfile.TemporaryDirectory(prefix="startup-", dir=settings.home) as name:
        folder = Path(name)
        began = time.time()
        model = _prepare(folder / "home", settings)
        prepared_s = time.time() - began
        for number in range(1, repeats + 1):
            peer, theirs = _peer(folder / f"peer-{number}", model, settings)
            run, own = _run(folder / f"ours-{number}", folder / "home", model, settings)
            check_peer(peer, RANKS)
            check_ours(run.cell, RANKS)
            check_same(theirs, own)
            peers.append(peer)
            runs.append(run)
    return {
        "name": NAME,
        "figure": startup_rows.ratio(peers, runs),
        "unit": "of the wall time of vLLM's startup benchmark",
        "goal": GOAL,
        "better": LESS,
        "rows": startup_rows.rows(peers, runs, prepared_s),
        "notes": startup_rows.notes(peers, runs, AIM),
        "environment": _environment(runs[-1].cell) | {"threads": RANKS},
    }


def _environment(cell: Any) -> dict[str, Any]:
    return {name: cell["environment"][name] for name in Environment.model_fields}


def _others() -> float:
    """Cores of this machine that are busy while nothing of ours runs, over some seconds."""
    return psutil.cpu_percent(WATCHED_S) / 100 * (psutil.cpu_count() or 1)


# --- ours -------------------------------------------------------------------------------------------------------------


def _prepare(home: Path, settings: Settings) -> Path:
    """Have the model built, and the engine environment described, by a plan. The model's folder."""
    home.mkdir()
    command, env = _shardproof(home, settings, "plan", _matrix(home / "plan.json", MODEL))
    _refuse_failed("shardproof plan", _ended(command, env))
    (model,) = (path for path in (home / "models").iterdir() if (path / "config.json").exists())
    return model


def _matrix(path: Path, model: str) -> Path:
    path.write_text(json.dumps({"name": NAME, "engine": {"model": model, **ENGINE}, "checks": CHECKS}))
    return path


def _run(folder: Path, home: Path, model: Path, settings: Settings) -> tuple[Ours, list[CacheKey]]:
    folder.mkdir()
    report_file = folder / "report.json"
    matrix = _matrix(folder / "matrix.json", str(model))
    command, env = _shardproof(home, settings, "run", matrix, "--json", report_file)
    others = _others()
    begin = time.time()
    ended = _ended_by_itself(command, env)
    end = time.time()
    _refuse_failed("shardproof run", ended)
    report = json.loads(report_file.read_text())
    (cell,) = report["cells"]
    sweep_id = report["sweep"]["id"]
    store = open_store(Settings(home=home, database_url=None).store_url)
    try:
        with store.reading() as session:
            sweep = repositories.get_sweep(session, sweep_id)
            (record,) = repositories.cells_of(session, sweep_id)
            found = repositories.events_after(session, sweep_id, 0, EVENTS_AT_ONCE)
    finally:
        store.close()
    events = tuple(Event(kind=item.kind, at=item.at, arm=item.arm, rank=item.rank, data=item.data) for item in found)
    concluded = record.ended_at.timestamp() if record.ended_at else end
    run = Ours(begin, end, sweep.created_at.timestamp(), concluded, events, cell, others)
    return run, _cache_keys(home / "artifacts" / sweep_id)


def _shardproof(home: Path, settings: Settings, *arguments: str | Path) -> tuple[list[str], dict[str, str]]:
    """The command as a user types it, and its environment."""
    own = {"SHARDPROOF_HOME": str(home), "SHARDPROOF_PYTHON": str(settings.python)}
    return [sys.executable, "-m", "service.launch", *map(str, arguments)], environment.clean() | own


# --- the peer ---------------------------------------------------------------------------------------------------------


def arguments_of(settings: EngineSettings) -> list[str]:
    """Engine settings as vLLM's command line takes them: what is nested as one JSON object for each."""
    nested: dict[str, Any] = {}
    for key, value in settings.items():
        *parents, last = key.split(".")
        target = nested
        for parent in parents:
            target = target.setdefault(parent, {})
        target[last] = value
    found = []
    for name, value in nested.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            found.append(f"--{option}" if value else f"--no-{option}")
        else:
            found += [f"--{option}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return found


def _peer(folder: Path, model: Path, settings: Settings) -> tuple[Peer, list[CacheKey]]:
    """vLLM's benchmark with one cold start, one warm-up and one warm start, each of which fills in a row."""
    cache, counted, results = folder / "cache", folder / "counted", folder / "results.json"
    cache.mkdir(parents=True)
    once = [f"--num-iters-{kind}=1" for kind in ("cold", "warmup", "warm")]
    arguments = [*once, f"--output-json={results}", "--model", str(model), *arguments_of(ENGINE)]
    command = [str(settings.python), "-m", "workers.bench.peer", *arguments]
    others = _others()
    begin = time.time()
    ended = _ended(command, environment.for_peer(str(cache), RANKS, str(counted)))
    end = time.time()
    _refuse_failed("vLLM's startup benchmark", ended)
    told = [json.loads(line) for line in counted.read_text().splitlines()]
    starts = tuple(peer_starts(ended.lines, json.loads(results.read_text()), told))
    return Peer(end - begin, starts, others), _cache_keys(cache)


def peer_starts(
    lines: list[tuple[float, str]], results: dict[str, Any], told: list[dict[str, Any]]
) -> Iterator[PeerStart]:
    """What the peer did, from its output (with the time of each line), its results and its workers' counters.

    Raises:
        NotMeasured: when this version of it does not say when a start begins, or made another number of them.
    """
    marks = [next((at for at, line in lines if mark in line), None) for mark in (*ANNOUNCED, RESULTS)]
    processes = list(dict.fromkeys(item["start"] for item in told))
    if None in marks or len(processes) != len(STARTS):
        raise NotMeasured(
            f"vLLM's startup benchmark is another than the one that is known here: it made {len(processes)} starts and "
            f"announced {sum(mark is not None for mark in marks)} of {len(marks)} things"
        )
    times = [mark for mark in marks if mark is not None]
    for kind, process, begin, end in zip(STARTS, processes, times, times[1:], strict=False):
        yield PeerStart(
            kind=kind,
            wall_s=end - begin,
            startup_s=results.get(f"avg_{kind}_startup_time"),
            compile_s=results.get(f"avg_{kind}_compilation_time"),
            counters=tuple(item["counters"] for item in told if item["start"] == process),
        )


def _cache_keys(folder: Path) -> list[CacheKey]:
    """What vLLM's cache keys below ``folder`` were made of: a hash each of configuration, code and compiler."""
    factors = [json.loads(path.read_text()) for path in folder.rglob(cache_keys.FACTORS)]
    return [{name: value for name, value in found.items() if isinstance(value, str)} for found in factors]


# --- commands ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """A command that has ended. ``lines``: of its output, each with the Unix time at which it came."""

    status: int
    lines: list[tuple[float, str]]


def _ended(command: list[str], env: dict[str, str]) -> Ended:
    """Run a command under a supervisor: its whole tree ends with it, when its time is up, or with this process."""
    lifeline, end = os.pipe()
    with os.fdopen(end, "wb") as mine:
        supervised = [sys.executable, "-m", "workers.supervisor", str(lifeline), *command]
        with _started(supervised, env, pass_fds=(lifeline,), start_new_session=True) as process:
            os.close(lifeline)
            return _followed(process, mine.close)


def _ended_by_itself(command: list[str], env: dict[str, str]) -> Ended:
    """Run a command that has a supervisor of its own, which notices when the command is killed."""
    with _started(command, env, preexec_fn=die_with_parent) as process:
        return _followed(process, process.kill)


def _started(command: list[str], env: dict[str, str], **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        **options,
    )


def _followed(process: subprocess.Popen[str], end: Callable[[], None]) -> Ended:
    """Read all it says. ``end`` ends it when its time is up."""
    expiry = threading.Timer(TIMEOUT_S, end)
    expiry.start()
    try:
        lines = [(time.time(), line) for line in process.stdout or ()]
        return Ended(process.wait(), lines)
    finally:
        expiry.cancel()


def _refuse_failed(what: str, ended: Ended) -> None:
    if ended.status:
        last = "".join(line for _, line in ended.lines[-TAIL:])
        raise NotMeasured(f"{what} ended with status {ended.status}:\n{last}")
