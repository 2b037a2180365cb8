from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from sqlalchemy.exc import StatementError

from service.domain.lifecycle import InvalidTransition, State
from service.domain.verdict import Verdict
from service.store import Store, repositories
from service.store.models import SweepRow
from service.store.records import ArmState, NewEvent, SweepState, UnknownRecord
from store.samples import (
    ENVIRONMENT,
    SHAPE,
    SWEEP,
    add_sweep,
    advance,
    arm_report,
    audited,
    cell,
    divergence,
    evidence,
    finish,
    phase,
    residual,
    run_spec,
    sweep,
)
from workers.protocol import Event, Outcome, Patch, PatchState, Role


def test_a_sweep_comes_back_as_it_was_stored(store: Store) -> None:
    add_sweep(store)
    with store.transaction() as session:
        repositories.set_sweep_environment(session, SWEEP, ENVIRONMENT)
    with store.reading() as session:
        found = repositories.get_sweep(session, SWEEP)
    assert found.state is SweepState.ACTIVE
    assert found.created_at == datetime(2026, 11, 30, 2, 15, tzinfo=UTC)
    assert found.created_at.tzinfo is UTC
    assert found.matrix == sweep().matrix
    assert found.environment == ENVIRONMENT


def test_cells_keep_the_order_of_the_matrix(store: Store) -> None:
    with store.transaction() as session:
        repositories.create_sweep(session, sweep(), [cell("z"), cell("a", expect=(Verdict.CRASHED, Verdict.PASS))])
    with store.reading() as session:
        found = repositories.cells_of(session, SWEEP)
    assert [item.id for item in found] == ["z", "a"]
    assert found[0].requested == dict(cell("z").requested)
    assert found[0].state is State.AUDITING
    assert found[1].expect == (Verdict.CRASHED, Verdict.PASS)
    assert (found[0].verdict, found[0].ok, found[0].effective) == (None, None, None)


def test_times_without_a_zone_are_refused(store: Store) -> None:
    with pytest.raises(StatementError, match="no time zone"), store.transaction() as session:
        session.add(SweepRow(id="x", name="x", created_at=datetime(2026, 1, 1), state="active", owner="o"))


def test_what_is_not_there_is_named(store: Store) -> None:
    add_sweep(store)
    with store.transaction() as session:
        for look_up, name in (
            (lambda: repositories.get_sweep(session, "nope"), "sweep 'nope'"),
            (lambda: repositories.get_cell(session, SWEEP, "nope"), f"cell '{SWEEP}/nope'"),
            (lambda: repositories.get_run(session, "nope"), "run 'nope'"),
            (lambda: repositories.finish_arm(session, "nope", arm_report(Role.COLD)), "arm 'nope'"),
        ):
            with pytest.raises(UnknownRecord, match=name):
                look_up()
        assert repositories.cells_of(session, "nope") == []


def test_sweeps_are_listed_newest_first_in_pages_with_their_counts(store: Store) -> None:
    ids = [f"2026113{day}-000000-aaaaaa" for day in range(3)]
    for sweep_id in ids:
        add_sweep(store, sweep_id, cells=3)
    for cell_id, ok in (("c0", True), ("c1", False)):
        with store.transaction() as session:
            repositories.conclude_cell(session, ids[2], cell_id, Verdict.PASS, ok, [], State.CRASHED)
    with store.reading() as session:
        first = repositories.list_sweeps(session, limit=2)
        second = repositories.list_sweeps(session, limit=2, before=first[-1].id)
    assert [item.id for item in first] == [ids[2], ids[1]]
    assert [item.id for item in second] == [ids[0]]
    assert (first[0].cells, first[0].ok, first[0].unexpected) == (3, 1, 1)
    assert (first[1].cells, first[1].ok, first[1].unexpected) == (3, 0, 0)


def test_a_sweep_without_cells_is_listed(store: Store) -> None:
    add_sweep(store, cells=0)
    with store.reading() as session:
        (found,) = repositories.list_sweeps(session, limit=5)
    assert (found.cells, found.ok, found.unexpected) == (0, 0, 0)


def test_an_audit_is_stored_without_moving_the_cell(store: Store) -> None:
    add_sweep(store)
    with store.transaction() as session:
        repositories.record_audit(session, SWEEP, "c0", audited("c0"), "print")
    with store.reading() as session:
        found = repositories.get_cell(session, SWEEP, "c0")
    assert found.state is State.AUDITING
    assert found.effective == audited("c0").effective
    assert list(found.changes) == audited("c0").changes
    assert found.patches[Patch.FALLBACK_FAST_PATH] is PatchState.APPLIED
    assert found.shape == SHAPE
    assert found.fingerprint == "print"


def test_a_cell_moves_along_the_lifecycle_and_notes_when(store: Store) -> None:
    add_sweep(store)
    advance(store, "c0", State.QUEUED, State.LEASED, State.RUNNING)
    with store.reading() as session:
        running = repositories.get_cell(session, SWEEP, "c0")
    assert running.started_at is not None
    assert running.ended_at is None
    advance(store, "c0", State.FINISHED)
    with store.reading() as session:
        assert repositories.get_cell(session, SWEEP, "c0").ended_at is not None


def test_a_step_that_the_lifecycle_lacks_is_refused(store: Store) -> None:
    add_sweep(store)
    with pytest.raises(InvalidTransition, match=r"cell 'cell c0' of sweep .* is auditing and cannot become finished"):
        advance(store, "c0", State.FINISHED)


def test_a_cell_is_concluded_once(store: Store) -> None:
    add_sweep(store)
    advance(store, "c0", State.QUEUED)
    with store.transaction() as session:
        repositories.conclude_cell(session, SWEEP, "c0", Verdict.FAIL_GUARD, False, ["first"], State.FINISHED)
    with pytest.raises(InvalidTransition), store.transaction() as session:
        repositories.conclude_cell(session, SWEEP, "c0", Verdict.PASS, True, ["second"], State.FINISHED)
    with store.reading() as session:
        found = repositories.get_cell(session, SWEEP, "c0")
    assert (found.verdict, found.ok, found.reasons) == (Verdict.FAIL_GUARD, False, ("first",))


def test_a_duplicate_names_a_cell_of_its_own_sweep(store: Store) -> None:
    add_sweep(store)
    with store.transaction() as session:
        repositories.set_duplicate(session, SWEEP, "c1", "c0")
    with store.reading() as session:
        assert repositories.get_cell(session, SWEEP, "c1").duplicate_of == "c0"
    with pytest.raises(UnknownRecord), store.transaction() as session:
        repositories.set_duplicate(session, SWEEP, "c1", "elsewhere")


def test_attempts_are_counted_and_the_newest_is_given(store: Store) -> None:
    add_sweep(store)
    with store.transaction() as session:
        first = repositories.create_run(session, SWEEP, "c0", run_spec("run-1"))
        second = repositories.create_run(session, SWEEP, "c0", run_spec("run-2"))
        other = repositories.create_run(session, SWEEP, "c1", run_spec("run-3", "c1"))
    assert (first.attempt, second.attempt, other.attempt) == (1, 2, 1)
    assert first.spec == run_spec("run-1")
    with store.reading() as session:
        assert {run.id for run in repositories.latest_runs(session, SWEEP)} == {"run-2", "run-3"}


def test_evidence_comes_back_as_it_was_stored(store: Store) -> None:
    add_sweep(store)
    broken = residual(bitwise_equal=False, worst_score=math.inf, first_divergence=divergence(score=None))
    found = evidence(residual=[broken])
    finish(store, "c0", found)
    with store.reading() as session:
        run = repositories.get_run(session, "run-1")
    assert run.evidence == found
    assert run.state is State.FINISHED
    assert run.ended_at is not None


def test_a_run_without_evidence_says_why(store: Store) -> None:
    add_sweep(store)
    with store.transaction() as session:
        repositories.create_run(session, SWEEP, "c0", run_spec("run-1"))
        for state in (State.LEASED, State.RUNNING):
            repositories.set_run_state(session, "run-1", state)
        repositories.finish_run(session, "run-1", State.CRASHED, None, "the actor died")
    with store.reading() as session:
        run = repositories.get_run(session, "run-1")
    assert (run.evidence, run.failure) == (None, "the actor died")
    assert run.started_at is not None
    with pytest.raises(InvalidTransition, match="run run-1 is crashed"), store.transaction() as session:
        repositories.finish_run(session, "run-1", State.FINISHED, evidence())


def test_an_arm_is_leased_once(store: Store) -> None:
    with store.transaction() as session:
        assert repositories.lease_arm(session, "key", Role.REFERENCE, "/folder", "me")
        assert not repositories.lease_arm(session, "key", Role.REFERENCE, "/other", "you")
        assert repositories.lease_arm(session, "key-2", Role.REPLICATED, "/folder-2", "me")
    with store.reading() as session:
        arm = repositories.get_arm(session, "key")
        assert repositories.get_arm(session, "nope") is None
    assert arm is not None
    assert (arm.state, arm.folder, arm.owner, arm.report) == (ArmState.LEASED, "/folder", "me", None)


@pytest.mark.parametrize(("outcome", "state"), [(Outcome.OK, ArmState.DONE), (Outcome.TIMED_OUT, ArmState.FAILED)])
def test_an_arm_ends_with_its_report_and_can_be_forgotten(store: Store, outcome: Outcome, state: ArmState) -> None:
    report = arm_report(Role.REFERENCE, outcome)
    with store.transaction() as session:
        repositories.lease_arm(session, "key", Role.REFERENCE, "/folder", "me")
        repositories.forget_arm(session, "key")
        repositories.finish_arm(session, "key", report)
    with store.reading() as session:
        arm = repositories.get_arm(session, "key")
    assert arm is not None
    assert (arm.state, arm.report) == (state, report)
    with store.transaction() as session:
        repositories.forget_arm(session, "key")
        assert repositories.get_arm(session, "key") is None


def test_leases_of_the_dead_are_released(store: Store) -> None:
    with store.transaction() as session:
        for key, owner in (("a", "dead"), ("b", "alive"), ("c", "dead")):
            repositories.lease_arm(session, key, Role.REFERENCE, "/folder", owner)
        repositories.finish_arm(session, "c", arm_report(Role.REFERENCE))
        assert repositories.release_arms(session, lambda owner: owner == "alive") == ["a"]
        assert repositories.get_arm(session, "c") is not None
        assert repositories.lease_arm(session, "a", Role.REFERENCE, "/folder", "alive")


def test_cells_of_the_dead_are_found(store: Store) -> None:
    add_sweep(store, "s1", owner="dead")
    add_sweep(store, "s2", owner="alive")
    add_sweep(store, "s3", owner="dead")
    advance(store, "c0", State.CRASHED, sweep_id="s1")
    with store.transaction() as session:
        repositories.end_sweep(session, "s3")
        repositories.end_sweep(session, "s3")

    def alive(owner: str) -> bool:
        return owner == "alive"

    with store.reading() as session:
        assert repositories.abandoned_sweeps(session, alive) == ["s1"]
        assert repositories.abandoned_cells(session, alive) == [("s1", "c1")]
        assert repositories.abandoned_cells(session, lambda owner: True) == []


def test_events_are_read_on_from_a_cursor(store: Store) -> None:
    add_sweep(store)
    add_sweep(store, "another")
    event = Event(kind="phase", at=12.25, arm=Role.COLD, rank=1, data={"name": "dynamo"})
    with store.transaction() as session:
        repositories.add_events(session, [])
        repositories.add_events(session, [NewEvent.of(event, SWEEP, "c0", "run-1"), NewEvent("another", 1.0, "phase")])
        repositories.add_events(session, [NewEvent(SWEEP, 13.0, "arm-finished", "c0") for _ in range(3)])
    with store.reading() as session:
        first = repositories.events_after(session, SWEEP, 0, 2)
        rest = repositories.events_after(session, SWEEP, first[-1].id, 10)
    assert [item.kind for item in first + rest] == ["phase", *["arm-finished"] * 3]
    found = first[0]
    assert (found.at, found.arm, found.rank, found.data) == (12.25, Role.COLD, 1, {"name": "dynamo"})
    assert (found.sweep_id, found.cell_id, found.run_id) == (SWEEP, "c0", "run-1")


def test_the_latest_phase_of_each_rank_of_running_cells(store: Store) -> None:
    add_sweep(store, cells=3)
    for cell_id in ("c0", "c1"):
        advance(store, cell_id, State.QUEUED, State.LEASED, State.RUNNING)
    with store.transaction() as session:
        repositories.add_events(
            session,
            [
                phase("c0", 0, "load"),
                phase("c0", 1, "load"),
                phase("c0", 0, "dynamo", at=2.0),
                phase("c2", 0, "not running"),
                phase("c1", 0, "cold inductor"),
                phase("c1", 1, "cold inductor"),
                phase("c1", 1, "warm load", arm=Role.WARM),
                NewEvent(SWEEP, 3.0, "arm-started", "c0", None, Role.COLD, 0),
            ],
        )
    with store.reading() as session:
        found = repositories.latest_phases(session, SWEEP)
    assert [(item.cell_id, item.rank, item.name, item.at) for item in found] == [
        ("c0", 0, "dynamo", 2.0),
        ("c0", 1, "load", 1.0),
        ("c1", 1, "warm load", 1.0),
    ]
