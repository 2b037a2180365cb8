"""Fill a database with sweeps, cells, runs and events, in the form that the store itself gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import Connection, Engine

from service.domain.lifecycle import State
from service.domain.verdict import Verdict
from service.reads import evidence
from service.reads.rows import Row, insert, stamp
from service.reads.shape import Shape, Sweep
from service.report_evidence import reported
from service.report_text import FORMAT
from service.store.models import CellRow, EventRow, RunPartRow, RunRow, SweepRow
from service.store.plain import dump_json
from service.store.records import SweepState
from workers.protocol import ArmSpec, BatchPlan, Role, RunSpec
from workers.protocol import Shape as EngineShape

AT_ONCE = 50
"""Sweeps whose rows are made and handed over together."""

SETTINGS = dump_json({f"compilation_config.setting_{number}": [number, "value"] for number in range(150)})
CHANGES = dump_json(
    [
        {
            "key": f"compilation_config.setting_{number}",
            "requested": None,
            "effective": number,
            "written": False,
            "reason": "filled in by the engine, as it does where nothing was written",
            "where": "vllm/config/vllm.py:800",
        }
        for number in range(50)
    ]
)
ENVIRONMENT = dump_json(evidence.ENVIRONMENT.model_dump(mode="json"))
LITTLE = dump_json({"tensor_parallel_size": 2, "compilation_config.pass_config.enable_sp": True})
SPEC = dump_json(
    RunSpec(
        run_id="run",
        cell="cell",
        checks=[],
        arms=[
            ArmSpec(
                role=Role.COLD,
                key="key",
                engine={"model": "tiny:llama"},
                patches={},
                env={},
                batch=BatchPlan(),
                taps=False,
                folder="/artifacts/cold",
                cache_root="/artifacts/cache",
                models_dir="/models",
                timeout_s=1800.0,
            )
        ],
        shape=EngineShape(
            tensor_parallel_size=2,
            pipeline_parallel_size=1,
            layers=2,
            hidden_size=64,
            dtype="float32",
            sequence_parallelism=True,
            full_graph=True,
            compiled=True,
        ),
    ).model_dump(mode="json")
)
PARTS = {
    whole: dump_json(reported(made, kept=True)) for whole, made in ((True, evidence.whole()), (False, evidence.least()))
}
LEAST = dump_json(evidence.least().model_dump(mode="json"))
WHOLE = dump_json(evidence.whole().model_dump(mode="json"))


def load(engine: Engine, shape: Shape, *further: Callable[[Connection, Shape], None]) -> None:
    """Store what ``shape`` asks for in an empty database, and let the database look at what it has got.

    ``further``: what else is stored, once the sweeps are in.
    """
    with engine.begin() as connection, _unchecked(connection):
        batch: list[Sweep] = []
        for sweep in shape.sweeps():
            batch.append(sweep)
            if len(batch) == AT_ONCE:
                _store(connection, batch)
                batch = []
        _store(connection, batch)
        for load_more in further:
            load_more(connection, shape)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        # The planner of PostgreSQL knows how much there is only when it has looked, and reads an index alone only
        # where it knows that every row is visible: what its own upkeep does after some minutes.
        connection.exec_driver_sql("ANALYZE" if engine.dialect.name == "sqlite" else "VACUUM (ANALYZE)")


def _store(connection: Connection, sweeps: Sequence[Sweep]) -> None:
    for model, rows in (
        (SweepRow, [_sweep(sweep) for sweep in sweeps]),
        (CellRow, [row for sweep in sweeps for row in _cells(sweep)]),
        (RunRow, [row for sweep in sweeps for row in _runs(sweep)]),
        (RunPartRow, [row for sweep in sweeps for row in _parts(sweep)]),
        (EventRow, [row for sweep in sweeps for row in _events(sweep)]),
    ):
        insert(connection, model, rows)


@contextmanager
def _unchecked(connection: Connection) -> Iterator[None]:
    """Without looking up the parent of each row: they were made from their parents."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica; SET LOCAL TimeZone = 'UTC'")
    yield


def _sweep(sweep: Sweep) -> Row:
    return {
        "id": sweep.id,
        "name": "nightly",
        "created_at": stamp(sweep.number),
        "ended_at": None if sweep.active else stamp(sweep.number, 1),
        "state": SweepState.ACTIVE if sweep.active else SweepState.ENDED,
        "owner": "host:1:1.00",
        "matrix": LITTLE,
        "timeouts": "{}",
        "environment": ENVIRONMENT,
    }


def _cells(sweep: Sweep) -> Iterator[Row]:
    for position, cell_id in enumerate(sweep.cells):
        yield {
            "sweep_id": sweep.id,
            "id": cell_id,
            "position": position,
            "name": f"cell {position}",
            "requested": LITTLE,
            "expect": f'["{Verdict.PASS}"]',
            "checks": "[]",
            "state": State.RUNNING if sweep.active else State.FINISHED,
            "effective": SETTINGS if sweep.whole else LITTLE,
            "changes": CHANGES if sweep.whole else "[]",
            "patches": "{}",
            "problems": "[]",
            "fingerprint": cell_id,
            "verdict": None if sweep.active else Verdict.PASS,
            "ok": None if sweep.active else True,
            "reasons": "[]",
            "started_at": stamp(sweep.number),
            "ended_at": None if sweep.active else stamp(sweep.number, 1),
        }


def _runs(sweep: Sweep) -> Iterator[Row]:
    for cell_id, attempt, run_id in sweep.runs():
        last = attempt == sweep.attempts
        running = last and sweep.active
        yield {
            "id": run_id,
            "sweep_id": sweep.id,
            "cell_id": cell_id,
            "attempt": attempt,
            "state": State.RUNNING if running else State.FINISHED if last else State.CRASHED,
            "created_at": stamp(sweep.number),
            "started_at": stamp(sweep.number),
            "ended_at": None if running else stamp(sweep.number, 1),
            "spec": SPEC,
            "evidence": (WHOLE if sweep.whole else LEAST) if last and not running else None,
            "failure": None if last else "the node was lost",
        }


def _parts(sweep: Sweep) -> Iterator[Row]:
    for _, attempt, run_id in sweep.runs():
        if attempt == sweep.attempts and not sweep.active:
            yield {
                "run_id": run_id,
                "form": FORMAT,
                "environment": ENVIRONMENT,
                "patches": "{}",
                "text": PARTS[sweep.whole],
            }


def _events(sweep: Sweep) -> Iterator[Row]:
    for cell_id, _, run_id in sweep.runs():
        for number in range(sweep.events):
            yield {
                "sweep_id": sweep.id,
                "cell_id": cell_id,
                "run_id": run_id,
                "at": sweep.number * 3600.0 + number,
                "kind": "phase",
                "arm": Role.COLD,
                "rank": number % evidence.RANKS,
                "data": '{"name": "inductor"}',
            }
