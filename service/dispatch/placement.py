"""Where on a cluster a cell finds room, and refusing what never can."""

from __future__ import annotations

from collections.abc import Sequence

from service.dispatch.cluster import Connection, machines
from service.dispatch.plan import Plan, PlannedCell, written_at
from service.dispatch.work import is_run, ranks_of, shape_of
from service.domain.document import Document
from service.domain.errors import Problems
from service.domain.spread import Machine, spread
from service.settings import Settings

CONNECT_S = 30.0
"""How long a submission waits for a cluster that is just being connected to."""

EXECUTOR = "distributed_executor_backend"
PROCESSES = "mp"
"""The one of vLLM's executors that runs an engine on several machines as portions, see ``workers.engine.machines``."""


def refuse_what_never_fits(document: Document, plan: Plan, connection: Connection, settings: Settings) -> None:
    """All ranks of a cell run on one machine, or equally many on each of several. On CPU they fit anywhere.

    A cluster that is not there now is no reason to refuse: the sweep waits for it.

    Raises:
        MatrixError: with every cell that the machines of the cluster have no room for.
    """
    if not connection.wait(CONNECT_S):
        return
    found = machines()
    problems = Problems(document.place)
    for item in filter(is_run, plan.cells):
        _place(item, found, document, problems, settings)
    problems.raise_if_any()


def _place(
    item: PlannedCell, found: Sequence[Machine], document: Document, problems: Problems, settings: Settings
) -> None:
    ranks, on_gpus = ranks_of(shape_of(item)), item.environment is not None and item.environment.devices > 0
    place = spread(ranks, found, on_gpus)
    executor = item.cell.engine.get(EXECUTOR, PROCESSES)
    if place is None and on_gpus and not settings.autoscaling:
        message = (
            f"cell {item.cell.name} needs {ranks} GPUs of one machine, or equally many of each of several, and the "
            f"cluster has {_in_words(found)}"
        )
        hint = "Ask for fewer ranks, or set SHARDPROOF_AUTOSCALING=true where the cluster adds machines"
        problems.add("no-room", message, written_at(document, item.cell, "tensor_parallel_size"), hint)
    elif place is not None and place.machines > 1 and executor not in (None, PROCESSES):
        message = (
            f"cell {item.cell.name} needs {place.machines} machines of the cluster, over which vLLM's executor "
            f"{PROCESSES!r} runs it, and asks for {executor!r}"
        )
        hint = f"Leave {EXECUTOR} out, or ask for {PROCESSES}"
        problems.add("no-room", message, written_at(document, item.cell, EXECUTOR), hint)


def _in_words(found: Sequence[Machine]) -> str:
    counts = sorted((machine.gpus for machine in found), reverse=True)
    return f"machines with {', '.join(map(str, counts))} GPUs" if counts else "no machines"
