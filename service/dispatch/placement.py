"""Where on a cluster a cell finds room, and refusing what never can."""

from __future__ import annotations

from collections.abc import Sequence

from service.dispatch.cluster import Connection, nodes
from service.dispatch.plan import Plan, written_at
from service.dispatch.work import is_run, ranks_of, shape_of
from service.domain.document import Document
from service.domain.errors import Problems
from service.settings import Settings

CONNECT_S = 30.0
"""How long a submission waits for a cluster that is just being connected to."""


def refuse_what_never_fits(document: Document, plan: Plan, connection: Connection, settings: Settings) -> None:
    """All ranks of a cell run on one machine. On CPU they share its cores and fit anywhere.

    A cluster that is not there now is no reason to refuse: the sweep waits for it.

    Raises:
        MatrixError: with every cell that no machine of the cluster has room for.
    """
    if settings.autoscaling or not connection.wait(CONNECT_S):
        return
    found = nodes()
    problems = Problems(document.place)
    for item in filter(is_run, plan.cells):
        ranks, on_gpus = ranks_of(shape_of(item)), item.environment is not None and item.environment.devices > 0
        if on_gpus and not fits(ranks, found):
            message = f"cell {item.cell.name} needs {ranks} GPUs of one machine, and the cluster has {_in_words(found)}"
            hint = "Ask for fewer ranks, or set SHARDPROOF_AUTOSCALING=true where the cluster adds larger machines"
            path = written_at(document, item.cell, "tensor_parallel_size")
            problems.add("no-room", message, path, hint)
    problems.raise_if_any()


def fits(ranks: int, machines: Sequence[dict[str, float]]) -> bool:
    """Has one of ``machines`` a GPU for each rank, and a core for their actor?"""
    return any(machine.get("GPU", 0) >= ranks and machine.get("CPU", 0) >= 1 for machine in machines)


def _in_words(machines: Sequence[dict[str, float]]) -> str:
    counts = sorted((int(machine.get("GPU", 0)) for machine in machines), reverse=True)
    return f"machines with {', '.join(map(str, counts))} GPUs" if counts else "no machines"
