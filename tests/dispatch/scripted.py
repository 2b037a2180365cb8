"""Sweeps whose engines are played by a script, planned without an engine environment; controllers that run them.

The rest is real: the store, Ray, the run actor, its supervisors and child processes, the judge.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.dispatch import controller as controllers
from service.dispatch.accept import Terms, accept
from service.dispatch.controller import Controller
from service.dispatch.engines import Engine
from service.dispatch.plan import Plan, PlannedCell
from service.dispatch.serving import running
from service.domain.cell import Cell
from service.domain.document import Document
from service.domain.matrix import Matrix
from service.domain.timeouts import Timeouts
from service.domain.verdict import Verdict
from service.settings import Settings
from service.store import Store, open_store, repositories
from service.store.queue_records import SHARED
from service.store.records import CellRecord, SweepState
from workers.protocol import (
    AuditedCell,
    BatchPlan,
    Catalogue,
    Check,
    Environment,
    Patch,
    PatchState,
    Shape,
)

ENVIRONMENT = Environment(vllm="0", torch="0", ray="0", python="3", device="cpu", devices=0, cores=2)

ENGINE = """
import json, os, sys, time

spec = json.load(open(sys.argv[sys.argv.index("--request") + 1]))
env = spec["env"]
pipe = os.open(os.environ["SHARDPROOF_EVENTS"], os.O_WRONLY)

def emit(kind, rank=None, **data):
    line = {"kind": kind, "t": time.monotonic(), "pid": os.getpid(), "rank": rank, **data}
    os.write(pipe, (json.dumps(line) + "\\n").encode())

for rank in (0, 1):
    emit("rank", rank, started=time.monotonic())
emit("phase-begin", 0, name="dynamo")
gate = env.get("GATE")
while gate and not os.path.exists(gate):
    time.sleep(0.05)
if env.get("DIE"):
    os._exit(1)
found = os.path.exists(os.environ["VLLM_CACHE_ROOT"] + "/made")
os.makedirs(os.environ["VLLM_CACHE_ROOT"], exist_ok=True)
open(os.environ["VLLM_CACHE_ROOT"] + "/made", "w")
counters = {"num_compiled_artifacts_saved": int(not found), "num_compiled_artifacts_loaded": int(found),
            "num_inductor_compiles": int(not found)}
ranks = [{"rank": rank, "counters": counters, "peak_rss_bytes": 5, "census": [], "guards": []} for rank in (0, 1)]
answer = {"prompt": [1], "tokens": [7], "logprobs": [-0.5], "top": [{}]}
environment = {"vllm": "0", "torch": "0", "ray": "0", "python": "3", "device": "cpu", "devices": 0, "cores": 2}
result = {"ranks": ranks, "outputs": [answer], "patches": {}, "environment": environment}
json.dump(result, open(spec["folder"] + "/result.json", "w"))
"""


def shape(ranks: int = 1) -> Shape:
    return Shape(
        tensor_parallel_size=ranks,
        pipeline_parallel_size=1,
        layers=2,
        hidden_size=64,
        dtype="float32",
        sequence_parallelism=False,
        full_graph=True,
        compiled=True,
    )


@dataclass(frozen=True)
class Asked:
    """A cell. ``ranks``: of its engines. ``devices``: how many GPUs its engine environment sees."""

    name: str
    checks: tuple[Check, ...] = (Check.OUTPUTS,)
    ranks: int = 1
    env: dict[str, str] | None = None
    same_as: str | None = None
    devices: int = 0


def plan_of(settings: Settings, *asked: Asked) -> Plan:
    """What planning a matrix of such cells would give."""
    where = ENVIRONMENT.model_copy(update={"devices": max(item.devices for item in asked)})
    engine = Engine("default", settings, Catalogue(environment=where, keys={}))
    cells: dict[str, Cell] = {}
    planned = []
    for item in asked:
        env = {f"env.{key}": value for key, value in (item.env or {}).items()}
        requested: dict[str, Any] = {"model": "tiny:llama", "tensor_parallel_size": item.ranks, **env}
        cell = Cell(f"id-{item.name}", item.name, requested, (Verdict.PASS,), item.checks, ())
        cells[item.name] = cell
        answer = AuditedCell(
            id=cell.id,
            problems=[],
            effective=requested,
            changes=[],
            patches=dict.fromkeys(Patch, PatchState.NATIVE),
            shape=shape(item.ranks),
        )
        same = cells[item.same_as] if item.same_as else None
        planned.append(PlannedCell(cell, answer, BatchPlan(), f"print-{item.name}", same, engine, where))
    matrix = Matrix("scripted", tuple(cells.values()), Timeouts(cold=60, warm=60, probe=60), {"name": "scripted"})
    return Plan(matrix, where, tuple(planned), {"default": engine}, {"default": where})


def settings_in(home: Path, **more: Any) -> Settings:
    """Settings whose engine environment is the script."""
    home.mkdir(parents=True, exist_ok=True)
    python = home / "python"
    python.write_text(f"#!{sys.executable} -S\n{ENGINE}\n")
    python.chmod(0o755)
    return Settings(home=home, python=python, preload=False, **more)


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """Takes the place of the temporary folder. Short: Ray puts sockets below it."""
    folder, before = Path(tempfile.mkdtemp(prefix="sp-")), tempfile.tempdir
    tempfile.tempdir = str(folder)
    try:
        yield folder
    finally:
        tempfile.tempdir = before
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def controlling(settings: Settings, alone: bool = False) -> Iterator[tuple[Controller, Store]]:
    """A controller that is connected to a Ray of its own."""
    store = open_store(settings.store_url)
    try:
        with running(settings, store, alone=alone) as controller:
            yield controller, store
    finally:
        store.close()


def submit(controller: Controller, settings: Settings, *asked: Asked, **terms: Any) -> str:
    """As ``Controller.submit``, with the plan made here."""
    before = controllers.plan
    controllers.plan = lambda *_: plan_of(settings, *asked)
    try:
        return controller.submit(Document({"name": "scripted"}), **terms)
    finally:
        controllers.plan = before


def cells(store: Store, sweep_id: str) -> dict[str, CellRecord]:
    with store.reading() as session:
        return {cell.name: cell for cell in repositories.cells_of(session, sweep_id)}


def has_ended(store: Store, sweep_id: str) -> bool:
    with store.reading() as session:
        return repositories.get_sweep(session, sweep_id).state is SweepState.ENDED


def until(condition: Callable[[], Any], seconds: float = 120.0) -> None:
    """Wait for ``condition``, at most so long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.05)


def store_sweep(settings: Settings, store: Store, *asked: Asked) -> str:
    """As a controller that serves would store it, and then is gone."""
    sweep_id = "20261130-021500-ab12cd"
    with store.transaction() as session:
        accept(session, sweep_id, "elsewhere:1:1.00", plan_of(settings, *asked), Terms(SHARED), settings)
    return sweep_id
