"""The queue in the database: in which order jobs are leased, what waits for what, and who holds what."""

from __future__ import annotations

from typing import Any

import pytest

from service.domain.lifecycle import Course, Level, State
from service.store import Store, repositories
from service.store.queue_records import SHARED, JobKind, NewJob, QueueRecord
from service.store.records import UnknownRecord
from store.samples import add_sweep


def add(store: Store, sweep_id: str, *jobs: NewJob, **terms: Any) -> None:
    add_sweep(store, sweep_id, cells=0)
    queue = QueueRecord(sweep_id, **{"queue": SHARED, "priority": 0, "max_parallel": None, "key_id": None,
                                     "places": {}, **terms})  # fmt: skip
    with store.transaction() as session:
        repositories.queue_sweep(session, queue, jobs)


def job(name: str, position: int = 0, *needs: str) -> NewJob:
    return NewJob(name, JobKind.CELL, name, position, 2, 0, {"environment": "default"}, needs)


def ready(store: Store, now: float = 1.0, **full: Any) -> list[str]:
    with store.reading() as session:
        return [found.id for found in repositories.ready_jobs(session, SHARED, now, 100, **full)]


def move(store: Store, job_id: str, state: State, **fields: Any) -> None:
    with store.transaction() as session:
        repositories.move_job(session, job_id, Course(Level.JOB, job_id, state), **fields)


def test_jobs_come_by_priority_then_age_then_place(store: Store) -> None:
    add(store, "s1", job("old-0"), job("old-1", 1))
    add(store, "s2", job("urgent"), priority=7)
    add(store, "s3", job("new"))
    add(store, "s4", job("whenever"), priority=-1)
    assert ready(store) == ["urgent", "old-0", "old-1", "new", "whenever"]


def test_a_full_sweep_and_a_full_key_hold_up_nobody_else(store: Store) -> None:
    add(store, "s1", job("a"), max_parallel=1)
    add(store, "s2", job("b"), key_id="key")
    add(store, "s3", job("c"))
    assert ready(store, full_sweeps=["s1"]) == ["b", "c"]
    assert ready(store, full_keys=["key"]) == ["a", "c"]


def test_a_job_waits_for_all_that_it_needs(store: Store) -> None:
    add(store, "s1", job("arm-1"), job("arm-2", 1), job("cell", 2, "arm-1", "arm-2"), job("free", 3))
    assert ready(store) == ["arm-1", "arm-2", "free"]
    for arm, left in (("arm-1", ["arm-2", "free"]), ("arm-2", ["cell", "free"])):
        with store.transaction() as session:
            assert repositories.has_open_dependents(session, arm)
            repositories.move_job(session, arm, Course(Level.JOB, arm, State.FINISHED))
            repositories.release_waiting(session, arm)
        assert ready(store) == left
    # Run again, an arm holds up its cell again.
    move(store, "arm-1", State.QUEUED)
    with store.transaction() as session:
        repositories.count_waits(session, "cell")
        assert [found.id for found in repositories.jobs_needed(session, "cell")] == ["arm-1", "arm-2"]
    assert ready(store) == ["arm-1", "free"]


def test_what_was_lost_is_leased_again_when_it_is_due(store: Store) -> None:
    add(store, "s1", job("a"))
    move(store, "a", State.QUEUED, due=100.0)
    assert ready(store, now=99.9) == []
    assert ready(store, now=100.0) == ["a"]


def test_who_holds_a_job_is_known_as_long_as_it_runs_and_leases_are_counted(store: Store) -> None:
    add(store, "s1", job("a"), job("b", 1))
    for attempt in (1, 2):
        move(store, "a", State.LEASED, owner="me", run_id=f"run-{attempt}")
        move(store, "a", State.RUNNING, owner="me", run_id=f"run-{attempt}")
        with store.transaction() as session:
            assert repositories.held_runs(session, SHARED) == {f"run-{attempt}": "a"}
            held = repositories.get_job(session, "a")
            assert (held.owner, held.run_id, held.leases) == ("me", f"run-{attempt}", attempt)
        move(store, "a", State.QUEUED)
        with store.reading() as session:
            assert repositories.held_runs(session, SHARED) == {}


def test_queues_are_apart_and_a_sweep_can_change_to_another(store: Store) -> None:
    add(store, "s1", job("mine"), queue="host:1:1.00")
    assert ready(store) == []
    with store.transaction() as session:
        repositories.change_queue(session, "s1", SHARED)
        assert repositories.get_queue(session, "s1").queue == SHARED
    assert ready(store) == ["mine"]


def test_a_sweep_of_a_shared_queue_is_nobody_s_to_give_up(store: Store) -> None:
    add(store, "s1", job("a"))
    add(store, "s2", job("b"), queue="host:1:1.00")
    with store.reading() as session:
        assert repositories.abandoned_sweeps(session, lambda _: False) == ["s2"]


def test_a_job_or_queue_that_is_not_there_is_named(store: Store) -> None:
    with store.transaction() as session:
        with pytest.raises(UnknownRecord, match="job 'x'"):
            repositories.get_job(session, "x")
        with pytest.raises(UnknownRecord, match="queue of sweep 'x'"):
            repositories.get_queue(session, "x")
