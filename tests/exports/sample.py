"""A sweep with one fault, beside it what else a cell can come to."""

from __future__ import annotations

from store.samples import (
    SWEEP,
    add_sweep,
    advance,
    cell,
    divergence,
    evidence,
    residual,
    run_spec,
    sweep,
)

from service.domain.lifecycle import State
from service.domain.verdict import Verdict
from service.store import Store, repositories
from workers.protocol import Evidence

__all__ = ["FAULT", "SWEEP", "add_sweep", "fill"]

FAULT = "fail-residual: at layers.1.mlp on rank 1 two tokens are <shifted> & \x1b[31mwrong\x1b[0m"
NOTE = "note: the noise floor is modelled"
NAMES = {
    "c0": "healthy",
    "c1": "=sp-guard-removed",
    "c2": "engine died",
    "c3": "runs still",
    "c4": "fault, as expected",
    "c5": "skipped, as expected",
}


def fill(store: Store) -> None:
    expect = {"c4": (Verdict.FAIL_RESIDUAL,), "c5": (Verdict.SKIPPED,)}
    with store.transaction() as session:
        cells = [cell(cell_id, name, expect.get(cell_id, (Verdict.PASS,))) for cell_id, name in NAMES.items()]
        repositories.create_sweep(session, sweep(name='quick & "dirty"'), cells)
    wrong = evidence(residual=[residual(bitwise_equal=False, first_divergence=divergence(), worst_score=41.5)])
    end(store, "c0", Verdict.PASS, True, "pass: all checks held", evidence())
    end(store, "c1", Verdict.FAIL_RESIDUAL, False, FAULT, wrong)
    end(store, "c2", Verdict.CRASHED, False, "crashed: the engine died in phase load", None)
    advance(store, "c3", State.QUEUED, State.LEASED, State.RUNNING)
    end(store, "c4", Verdict.FAIL_RESIDUAL, True, FAULT, wrong)
    end(store, "c5", Verdict.SKIPPED, True, "skipped: nothing to do", None)


def end(store: Store, cell_id: str, verdict: Verdict, ok: bool, reason: str, found: Evidence | None) -> None:
    advance(store, cell_id, State.QUEUED, State.LEASED, State.RUNNING)
    state = State.FAILED if verdict is Verdict.CRASHED else State.FINISHED
    with store.transaction() as session:
        repositories.create_run(session, SWEEP, cell_id, run_spec(f"run-{cell_id}", cell_id), State.RUNNING)
        repositories.finish_run(session, f"run-{cell_id}", state, found)
        repositories.conclude_cell(session, SWEEP, cell_id, verdict, ok, [NOTE, reason], state)
