"""Fill a database with sweeps, cells, runs and events, as fast as it takes them: COPY, or one prepared statement.

What is loaded has the form that the store itself gives it; columns that are not named here get a value of their type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Column, Connection, Engine, Table

from service.domain.lifecycle import State
from service.domain.verdict import Verdict
from service.reads import evidence
from service.reads.shape import Shape, Sweep
from service.report_evidence import reported
from service.report_text import FORMAT
from service.store.models import CellRow, EventRow, RunPartRow, RunRow, SweepRow
from service.store.plain import dump_json
from service.store.records import SweepState
from workers.protocol import ArmSpec, BatchPlan, Role, RunSpec
from workers.protocol import Shape as EngineShape

BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
AT_ONCE = 50
"""Sweeps whose rows are made and handed over together."""

Row = dict[str, Any]

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


def load(engine: Engine, shape: Shape) -> None:
    """Store what ``shape`` asks for in an empty database, and let the database look at what it has got."""
    with engine.begin() as connection, _unchecked(connection):
        batch: list[Sweep] = []
        for sweep in shape.sweeps():
            batch.append(sweep)
            if len(batch) == AT_ONCE:
                _store(connection, batch)
                batch = []
        _store(connection, batch)
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
        table = model.__table__
        assert isinstance(table, Table)
        _insert(connection, table, rows)


def _insert(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    if not rows:
        return
    rest = {column.name: _any_value(column) for column in table.columns if _is_owed(column, rows[0])}
    columns = ", ".join([*rows[0], *rest])
    values = [(*row.values(), *rest.values()) for row in rows]
    cursor: Any = connection.connection.cursor()
    if connection.dialect.name == "sqlite":
        places = ", ".join("?" * len(values[0]))
        cursor.executemany(f"INSERT INTO {table.name} ({columns}) VALUES ({places})", values)
    else:
        with cursor.copy(f"COPY {table.name} ({columns}) FROM STDIN") as copy:
            for row in values:
                copy.write_row(row)
    cursor.close()


def _is_owed(column: Column[Any], row: Row) -> bool:
    counted = bool(column.primary_key and isinstance(column.type, sa.Integer))
    return not (column.name in row or column.nullable or column.server_default is not None or counted)


def _any_value(column: Column[Any]) -> Any:
    if column.default is not None and column.default.is_scalar:
        return column.default.arg  # type: ignore[attr-defined]
    kind = column.type.impl_instance if isinstance(column.type, sa.TypeDecorator) else column.type
    if isinstance(kind, sa.JSON):
        return "{}"
    return {bool: False, int: 0, float: 0.0, datetime: _stamp(0)}.get(kind.python_type, "")


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
        "created_at": _stamp(sweep.number),
        "ended_at": None if sweep.active else _stamp(sweep.number, 1),
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
            "started_at": _stamp(sweep.number),
            "ended_at": None if sweep.active else _stamp(sweep.number, 1),
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
            "created_at": _stamp(sweep.number),
            "started_at": _stamp(sweep.number),
            "ended_at": None if running else _stamp(sweep.number, 1),
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


def _stamp(hour: int, minutes: int = 0) -> str:
    """A moment in the text form that both databases read."""
    return f"{BEGIN + timedelta(hours=hour, minutes=minutes):%Y-%m-%d %H:%M:%S}.000000"
