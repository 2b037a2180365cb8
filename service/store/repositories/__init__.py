"""All queries. Each function works in the session it is given; the caller's unit of work commits.

    with store.transaction() as session:
        repositories.set_cell_state(session, sweep_id, cell_id, State.QUEUED)

Functions that name something which is not there raise ``UnknownRecord``; steps that the lifecycle does not have raise
``InvalidTransition``. Both leave the unit of work to roll back.
"""

from service.store.repositories import access, audit
from service.store.repositories.arms import finish_arm, forget_arm, get_arm, lease_arm, release_arms
from service.store.repositories.cells import (
    abandoned_cells,
    cells_of,
    conclude_cell,
    get_cell,
    record_audit,
    set_cell_state,
    set_duplicate,
)
from service.store.repositories.events import add_events, events_after, latest_phases, note_artifacts_removed
from service.store.repositories.runs import create_run, finish_run, get_run, latest_runs, set_run_state
from service.store.repositories.sweeps import (
    abandoned_sweeps,
    create_sweep,
    end_sweep,
    get_sweep,
    list_sweeps,
    set_sweep_environment,
)

__all__ = [
    "abandoned_cells",
    "abandoned_sweeps",
    "access",
    "add_events",
    "audit",
    "cells_of",
    "conclude_cell",
    "create_run",
    "create_sweep",
    "end_sweep",
    "events_after",
    "finish_arm",
    "finish_run",
    "forget_arm",
    "get_arm",
    "get_cell",
    "get_run",
    "get_sweep",
    "latest_phases",
    "latest_runs",
    "lease_arm",
    "list_sweeps",
    "note_artifacts_removed",
    "record_audit",
    "release_arms",
    "set_cell_state",
    "set_duplicate",
    "set_run_state",
    "set_sweep_environment",
]
