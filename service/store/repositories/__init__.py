"""All queries. Each function works in the session it is given; the caller's unit of work commits.

    with store.transaction() as session:
        repositories.set_cell_state(session, sweep_id, cell_id, State.QUEUED)

Functions that name something which is not there raise ``UnknownRecord``; steps that the lifecycle does not have raise
``InvalidTransition``. Both leave the unit of work to roll back.
"""

from service.store.repositories.arms import finish_arm, forget_arm, get_arm, lease_arm, release_arms
from service.store.repositories.cells import (
    abandoned_cells,
    cells_of,
    conclude_cell,
    get_cell,
    open_cells,
    record_audit,
    set_cell_state,
    set_duplicate,
)
from service.store.repositories.events import add_events, events_after, latest_phases, note_artifacts_removed
from service.store.repositories.fires import (
    abandoned_fires,
    claim_asked,
    claim_due,
    conclude_fire,
    due_schedules,
    get_fire,
    list_fires,
    next_time,
    renew_fires,
    sweep_since,
    take_over,
)
from service.store.repositories.runs import create_run, finish_run, get_run, latest_runs, set_run_state
from service.store.repositories.schedules import (
    change_schedule,
    create_schedule,
    delete_schedule,
    get_schedule,
    list_schedules,
)
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
    "abandoned_fires",
    "abandoned_sweeps",
    "add_events",
    "cells_of",
    "change_schedule",
    "claim_asked",
    "claim_due",
    "conclude_cell",
    "conclude_fire",
    "create_run",
    "create_schedule",
    "create_sweep",
    "delete_schedule",
    "due_schedules",
    "end_sweep",
    "events_after",
    "finish_arm",
    "finish_run",
    "forget_arm",
    "get_arm",
    "get_cell",
    "get_fire",
    "get_run",
    "get_schedule",
    "get_sweep",
    "latest_phases",
    "latest_runs",
    "lease_arm",
    "list_fires",
    "list_schedules",
    "list_sweeps",
    "next_time",
    "note_artifacts_removed",
    "open_cells",
    "record_audit",
    "release_arms",
    "renew_fires",
    "set_cell_state",
    "set_duplicate",
    "set_run_state",
    "set_sweep_environment",
    "sweep_since",
    "take_over",
]
