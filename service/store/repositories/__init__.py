"""All queries. Each function works in the session it is given; the caller's unit of work commits.

    with store.transaction() as session:
        repositories.set_cell_state(session, sweep_id, cell_id, State.QUEUED)

Functions that name something which is not there raise ``UnknownRecord``; steps that the lifecycle does not have raise
``InvalidTransition``. Both leave the unit of work to roll back.
"""

from service.store.repositories import access, audit
from service.store.repositories.arms import finish_arm, forget_arm, get_arm, hold_arm, lease_arm, release_arms
from service.store.repositories.cells import (
    abandoned_cells,
    ask_again,
    cells_of,
    conclude_cell,
    duplicates_of,
    get_cell,
    has_open_cells,
    record_audit,
    set_cell_state,
    set_duplicate,
)
from service.store.repositories.events import add_events, events_after, latest_phases, note_artifacts_removed
from service.store.repositories.jobs import (
    count_waits,
    get_job,
    get_queue,
    has_open_dependents,
    held_jobs,
    jobs_needed,
    jobs_of,
    jobs_of_cell,
    move_job,
    queue_sweep,
    ready_jobs,
    release_waiting,
    runs_held,
)
from service.store.repositories.leaders import get_leader, lead, resign
from service.store.repositories.runs import create_run, finish_run, get_run, latest_runs, runs_of, set_run_state
from service.store.repositories.sweeps import (
    abandoned_sweeps,
    create_sweep,
    end_sweep,
    get_sweep,
    list_sweeps,
    reopen_sweep,
    set_sweep_environment,
)

__all__ = [
    "abandoned_cells",
    "abandoned_sweeps",
    "access",
    "add_events",
    "ask_again",
    "audit",
    "cells_of",
    "conclude_cell",
    "count_waits",
    "create_run",
    "create_sweep",
    "duplicates_of",
    "end_sweep",
    "events_after",
    "finish_arm",
    "finish_run",
    "forget_arm",
    "get_arm",
    "get_cell",
    "get_job",
    "get_leader",
    "get_queue",
    "get_run",
    "get_sweep",
    "has_open_cells",
    "has_open_dependents",
    "held_jobs",
    "hold_arm",
    "jobs_needed",
    "jobs_of",
    "jobs_of_cell",
    "latest_phases",
    "latest_runs",
    "lead",
    "lease_arm",
    "list_sweeps",
    "move_job",
    "note_artifacts_removed",
    "queue_sweep",
    "ready_jobs",
    "record_audit",
    "release_arms",
    "release_waiting",
    "reopen_sweep",
    "resign",
    "runs_held",
    "runs_of",
    "set_cell_state",
    "set_duplicate",
    "set_run_state",
    "set_sweep_environment",
]
