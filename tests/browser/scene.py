"""A served controller with sweeps in its store: one with a fault and a regression, one that runs, and odd ones."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from api.server import serving
from domain.healthy import CHECKS, shape
from store.samples import cell, run_spec, sweep

from service.app import create_app
from service.dispatch.controller import Controller
from service.dispatch.courses import store_judgement
from service.dispatch.history import Ran, followed, with_reasons
from service.domain.lifecycle import State
from service.domain.schedule import Missed
from service.domain.verdict import Verdict
from service.settings import Settings
from service.store import Store, open_store, repositories
from service.store.records import NewEvent
from service.store.schedule_records import ScheduleFields
from workers.protocol import AuditedCell, Environment, Patch, PatchState, Role

from . import faults
from .faults import Found

NIGHTLY = "20261130-021500-ab12cd"
BEFORE = "20261129-021500-00beef"
RUNNING = "20261130-031500-0ddba1"
HOSTILE = "20261130-041500-ba5eba"
QUEUED = "20261130-051500-c0ffee"
EMPTY = "20261130-061500-facade"

HOSTILE_TEXT = "<script>document.title='owned'</script>\"'><img src=x onerror=alert(1)>&amp;{{7*7}}\u202e"
HOSTILE_ID = HOSTILE_TEXT.replace("/", "|")

ENVIRONMENT = Environment(
    vllm="0.31.0", torch="2.11.0", ray="2.56.0", python="3.11.2", device="cpu", devices=0, cores=2
)

NO_AXES: Mapping[str, list[Any]] = {}
AXES: Mapping[str, list[Any]] = {
    "max_num_batched_tokens": [512, 2048, 8192],
    "compilation_config.pass_config.enable_sp": [False, True],
}

NIGHT: Mapping[str, Found] = {
    "sp-full-graph": faults.healthy(),
    "sp-guard-removed": faults.residual_fault(),
    "tp2-long-prompts": faults.timed(12.4),
    "tp2-bfloat16": faults.crashed(),
    "sp-piecewise-asked": faults.downgraded(),
    "tp2-lost": faults.unlooked_at(),
}
"""The cells of the nightly sweep by name, in order; their ids are ``c0``, ``c1``, …"""

NIGHTS, LAST = 8, 30
"""So many nights, up to that day of the month. In all but the last two everything was well."""

SLOWER = "tp2-long-prompts"
SERIES = "72bd09d03ff76d31"
"""Id of the slower one's series: it follows from its settings and its machine."""

SETTINGS = Settings(home=Path("nowhere"), database_url=None, null_engine=Path("nowhere"))
"""Of a controller whose engines import by themselves."""


@dataclass(frozen=True)
class Scene:
    """Where it is served, and its store."""

    url: str
    store: Store
    settings: Settings


@contextmanager
def served(home: Path) -> Iterator[Scene]:
    """A controller that is connected to no Ray: what is queued stays so."""
    settings = Settings(home=home, database_url=None)
    store = open_store(settings.store_url)
    fill(store)
    try:
        with serving(create_app(settings, store, Controller(settings, store))) as url:
            yield Scene(url, store, settings)
    finally:
        store.close()


def fill(store: Store) -> None:
    """Store every sweep of the scene."""
    for night in range(1, NIGHTS):
        sweep_id, before = f"202611{LAST - NIGHTS + night:02}-021500-00beef", dict.fromkeys(NIGHT, faults.healthy())
        if night == NIGHTS - 1:
            before[SLOWER] = faults.timed(12.4)
        add_night(store, sweep_id, before)
    add_night(store, NIGHTLY, NIGHT)
    with store.transaction() as session:
        found = repositories.series.series_of_cell(session, NIGHTLY, f"c{list(NIGHT).index(SLOWER)}")
        assert found == SERIES, f"it has another id now: {found}"
        repositories.series_said.set_pinned(session, SERIES, True)
        fields = ScheduleFields("30 2 * * *", "Europe/Berlin", Missed.SKIP, False, {"name": "nightly"})
        repositories.create_schedule(session, "nightly", fields, at(NIGHTLY))
    add(store, RUNNING, "by hand", {"c0": "goes on", "c1": "waits"})
    begin(store, RUNNING, "c0")
    add(store, HOSTILE, HOSTILE_TEXT, {"c0": HOSTILE_TEXT, HOSTILE_ID: "odd id"}, HOSTILE_TEXT)
    with store.transaction() as session:
        repositories.conclude_cell(
            session, HOSTILE, HOSTILE_ID, Verdict.FAIL_GUARD, False, [HOSTILE_TEXT], State.CANCELLED
        )
    add(store, QUEUED, "not begun", {"c0": "first", "c1": "second"})
    add(store, EMPTY, "without cells", {})


def add_night(store: Store, sweep_id: str, cells: Mapping[str, Found]) -> None:
    """A sweep that has ended, in the night that its id begins with."""
    add(store, sweep_id, "nightly", {f"c{place}": name for place, name in enumerate(cells)}, axes=AXES)
    for place, found in enumerate(cells.values()):
        end(store, sweep_id, f"c{place}", found)
    with store.transaction() as session:
        repositories.end_sweep(session, sweep_id)


def at(sweep_id: str) -> datetime:
    """When a sweep was submitted, from its id."""
    return datetime.strptime(sweep_id[:15], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)


def add(
    store: Store,
    sweep_id: str,
    name: str,
    cells: Mapping[str, str],
    text: str = "as asked",
    axes: Mapping[str, list[Any]] = NO_AXES,
) -> None:
    """A sweep with audited cells, id → name. ``text``: what the audit says of a change, and a value of a setting."""
    new = replace(sweep(sweep_id, name=name), created_at=at(sweep_id))
    matrix = {**new.matrix, "matrix": dict(axes)}
    combinations = itertools.product(*axes.values()) if axes else itertools.repeat(())
    asked = [
        replace(cell(*item), requested={"model": text, **dict(zip(axes, values, strict=True))})
        for item, values in zip(cells.items(), combinations, strict=False)
    ]
    with store.transaction() as session:
        repositories.create_sweep(session, replace(new, matrix=matrix), asked)
        for cell_id in cells:
            asked_of = repositories.get_cell(session, sweep_id, cell_id).requested
            audited = _audited(cell_id, text, asked_of)
            repositories.record_audit(session, sweep_id, cell_id, audited, None, _environment(sweep_id))


def begin(store: Store, sweep_id: str, cell_id: str) -> str:
    """Let a cell run, its first rank at something; the id of its run."""
    run_id = f"{sweep_id}-{cell_id}"
    with store.transaction() as session:
        for state in (State.QUEUED, State.LEASED, State.RUNNING):
            repositories.set_cell_state(session, sweep_id, cell_id, state)
        spec = run_spec(run_id, cell_id).model_copy(update={"checks": list(CHECKS)})
        repositories.create_run(session, sweep_id, cell_id, spec, State.RUNNING)
    happen(store, sweep_id, cell_id, "dynamo")
    return run_id


def happen(store: Store, sweep_id: str, cell_id: str, name: str, rank: int = 0) -> None:
    """A rank of a cell that runs comes to the phase ``name``."""
    event = NewEvent(sweep_id, time.time(), "phase", cell_id, f"{sweep_id}-{cell_id}", Role.COLD, rank, {"name": name})
    with store.transaction() as session:
        repositories.add_events(session, [event])


def end(store: Store, sweep_id: str, cell_id: str, found: Found) -> None:
    """Take a cell through one run to what was found."""
    begin(store, sweep_id, cell_id)
    finish(store, sweep_id, cell_id, found)


def finish(store: Store, sweep_id: str, cell_id: str, found: Found) -> None:
    """End the run of a cell with what was found."""
    run_id = f"{sweep_id}-{cell_id}"
    evidence = found.case.evidence if found.state is not State.CRASHED else None
    if evidence is not None:
        evidence = evidence.model_copy(update={"environment": _environment(sweep_id)})
    failure = None if evidence is not None else "the node was lost"
    with store.transaction() as session:
        cell = repositories.get_cell(session, sweep_id, cell_id)
        repositories.finish_run(session, run_id, found.state, evidence, failure)
        ran = Ran(cell, run_id, _environment(sweep_id), evidence, found.judgement)
        reasons = followed(session, ran, SETTINGS, at(sweep_id))
        store_judgement(session, cell, with_reasons(found.judgement, reasons, cell), found.state)


def _environment(sweep_id: str) -> Environment:
    """Tonight there is another vLLM."""
    slow = sweep_id[:8] >= f"202611{LAST - 1:02}"
    return ENVIRONMENT if slow else ENVIRONMENT.model_copy(update={"vllm": "0.30.0"})


def _audited(cell_id: str, text: str, requested: Mapping[str, Any]) -> AuditedCell:
    return AuditedCell(
        id=cell_id,
        problems=[],
        effective={**requested, "tensor_parallel_size": 2, "compilation_config.splitting_ops": []},
        changes=[faults.downgraded().case.changes[0].model_copy(update={"reason": text})],
        patches={Patch.FULL_GRAPH_SP: PatchState.NATIVE, Patch.FALLBACK_FAST_PATH: PatchState.APPLIED},
        shape=shape(),
    )
