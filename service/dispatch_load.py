"""``python -m service.dispatch_load``: a controller that drives one large sweep of the null engine, and watches itself.

A process of its own, so that its CPU seconds and its memory are the controller's, and none of who asked for them. The
settings come from its environment as for any controller, but for the cluster: that has more slots than this machine has
cores, for several runs at once. With one at a time it would be measured how long a run takes, and nothing is computed
in any of them.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from ray.cluster_utils import Cluster
from sqlalchemy import Connection, Engine, Insert, event, func, select

from service.dispatch.cluster import prepare
from service.dispatch.serving import running
from service.domain.document import parse
from service.domain.lifecycle import State
from service.settings import Settings
from service.store import Store, open_store
from service.store.models import CellRow, EventRow
from workers.protocol import Patch
from workers.recording import Recording

LOOK_S = 0.25
SLOTS = 8
_LAGS = "shardproof_lags"


@dataclass(frozen=True)
class Sample:
    """The controller when ``cells`` of its cells had ended: seconds since the submission, its own CPU seconds."""

    cells: int
    s: float
    cpu_s: float
    rss_bytes: int


class Lags:
    """How long after it happened each event was in the database, in milliseconds: what is counted is commits."""

    def __init__(self) -> None:
        self.ms: Counter[int] = Counter()
        event.listen(Engine, "before_execute", self._note)
        event.listen(Engine, "commit", self._count)
        event.listen(Engine, "rollback", self._forget)

    def _note(self, connection: Connection, statement: Any, many: Any, one: Any, options: Any) -> None:
        if isinstance(statement, Insert) and statement.table.name == EventRow.__tablename__:
            connection.info.setdefault(_LAGS, []).extend(row["at"] for row in many or [one])

    def _count(self, connection: Connection) -> None:
        now = time.time()
        self.ms.update(round((now - at) * 1000) for at in connection.info.pop(_LAGS, ()))

    def _forget(self, connection: Connection) -> None:
        connection.info.pop(_LAGS, None)


def matrix(recording: Path, cells: int) -> str:
    """So many cells of what was recorded. They differ in a variable that means nothing to anybody."""
    patches = {f"patches.{patch}" for patch in Patch}
    engine = {key: value for key, value in Recording(recording).engines[0].items() if key not in patches}
    axes = {"env.CELL": list(range(cells))}
    return json.dumps({"name": "dispatch", "engine": engine, "matrix": axes, "checks": ["audit", "compile"]})


@contextmanager
def roomy() -> Iterator[str]:
    """Address of a Ray cluster of one machine with so many ``SLOTS``; it goes when the block is left."""
    options = {"num_cpus": SLOTS, "include_dashboard": False, "temp_dir": os.path.join(tempfile.gettempdir(), "ray")}
    prepare()
    # Not a process for each slot before there is a run for it.
    system = {"_system_config": {"prestart_worker_first_driver": False}}
    found = Cluster(initialize_head=True, shutdown_at_exit=False, head_node_args=options | system)
    try:
        yield found.address
    finally:
        found.shutdown()  # type: ignore[no-untyped-call]


def samples(store: Store, sweep_id: str, cells: int, begin: float) -> Iterator[Sample]:
    """At the start, and whenever another tenth of the cells has ended."""
    me = psutil.Process()
    ended = [state for state in State if state.ended]
    query = select(func.count()).where(CellRow.sweep_id == sweep_id, CellRow.state.in_(ended))
    marks = [cells * tenth // 10 for tenth in range(11)]
    while marks:
        with store.reading() as session:
            done = session.scalars(query).one()
        if done < marks[0]:
            time.sleep(LOOK_S)
            continue
        marks = [mark for mark in marks if mark > done]
        used = me.cpu_times()
        yield Sample(done, time.monotonic() - begin, used.user + used.system, me.memory_info().rss)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m service.dispatch_load", description=__doc__)
    parser.add_argument("--cells", type=int, required=True)
    parser.add_argument("--reply", type=Path, required=True)
    asked = parser.parse_args()
    settings = Settings()
    if settings.null_engine is None:
        parser.error("SHARDPROOF_NULL_ENGINE is not set: this is no load for real engines")
    document = parse(matrix(settings.null_engine, asked.cells))
    store = open_store(settings.store_url)
    lags = Lags()
    with roomy() as address, running(settings.model_copy(update={"ray_address": address}), store) as controller:
        begin = time.monotonic()
        sweep_id = controller.submit(document)
        accepted_s = time.monotonic() - begin
        found = list(samples(store, sweep_id, asked.cells, begin))
        controller.wait()
    verdicts = select(CellRow.verdict, func.count()).where(CellRow.sweep_id == sweep_id).group_by(CellRow.verdict)
    with store.reading() as session:
        by_verdict = {str(verdict): number for verdict, number in session.execute(verdicts)}
    store.close()
    asked.reply.write_text(
        json.dumps(
            {
                "accepted_s": accepted_s,
                "slots": SLOTS,
                "samples": [asdict(sample) for sample in found],
                "lags_ms": sorted(lags.ms.items()),
                "by_verdict": by_verdict,
                "environment": Recording(settings.null_engine).catalogue.environment.model_dump(),
            }
        )
    )


if __name__ == "__main__":
    main()
