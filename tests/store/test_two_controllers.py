"""Two controllers, real processes, one database: every time of a schedule is served, and served once."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier

import pytest

from service.dispatch.scheduler import LEASE, Scheduler
from service.domain.document import Document
from service.domain.schedule import Missed
from service.store import Store, open_store, repositories
from service.store.records import NewSweep
from service.store.schedule_records import FireState, ScheduleFields

pytestmark = pytest.mark.slow

SPAWN = multiprocessing.get_context("spawn")
MATRIX = {"name": "nightly", "engine": {"model": "tiny:llama"}}
BEGIN = datetime(2026, 10, 24, 22, tzinfo=UTC)
HOURS = 10
PATIENCE_S = 300.0


def store_sweep(store: Store, sweep_id: str, now: datetime) -> None:
    with store.transaction() as session:
        repositories.create_sweep(session, NewSweep(sweep_id, "nightly", now, "me", MATRIX, {}), [])


def in_step(url: str, owner: str, barrier: Barrier, safe: bool) -> None:
    """A controller that looks at the same moments as the other one. One that is not safe claims nothing first."""
    store, now = open_store(url), BEGIN

    def submit(_: Document, *, sweep_id: str, key_id: str | None = None) -> str:
        store_sweep(store, sweep_id, now)
        return sweep_id

    scheduler = Scheduler(store, submit, owner, lambda: now)
    with ThreadPoolExecutor(2) as executor:
        for hour in range(1, HOURS + 1):
            now = BEGIN + timedelta(hours=hour)
            barrier.wait(PATIENCE_S)
            if safe:
                for begun in scheduler.run_pass(executor):
                    begun.result(PATIENCE_S)
                continue
            with store.reading() as session:
                due = repositories.due_schedules(session, now, 10)
            barrier.wait(PATIENCE_S)
            for _ in due:
                submit(Document(MATRIX), sweep_id=f"{owner}-{hour}")
            with store.transaction() as session:
                for name in due:
                    session.get_one(repositories.schedules.ScheduleRow, name).next_at = now + timedelta(hours=1)
    store.close()


def dies(url: str, connection: Connection, after_storing: bool) -> None:
    """A controller that claims what is due and hangs while it submits."""
    store = open_store(url)

    def submit(_: Document, *, sweep_id: str, key_id: str | None = None) -> str:
        if after_storing:
            store_sweep(store, sweep_id, BEGIN + timedelta(hours=1))
        connection.send("claimed")
        signal.pause()
        raise AssertionError("nobody lets it go on")

    with ThreadPoolExecutor(1) as executor:
        for begun in Scheduler(store, submit, "dead", lambda: BEGIN + timedelta(hours=1)).run_pass(executor):
            begun.result(PATIENCE_S)


@contextmanager
def running(*processes: BaseProcess) -> Iterator[None]:
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join(PATIENCE_S)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(url)
    fields = ScheduleFields("0 * * * *", "Europe/Berlin", Missed.ONCE, False, MATRIX)
    with store.transaction() as session:
        repositories.create_schedule(session, "nightly", fields, BEGIN)
    yield store
    store.close()


def sweeps(store: Store) -> list[str]:
    with store.reading() as session:
        return [sweep.id for sweep in repositories.list_sweeps(session, 1000)]


def race(url: str, safe: bool) -> None:
    barrier = SPAWN.Barrier(2)
    both = [SPAWN.Process(target=in_step, args=(url, owner, barrier, safe)) for owner in ("a", "b")]
    with running(*both):
        for process in both:
            process.join(PATIENCE_S)
            assert process.exitcode == 0


def test_no_time_fires_twice_and_none_is_left_out(url: str, store: Store) -> None:
    """Over the night in which the clock is put back."""
    race(url, safe=True)
    with store.reading() as session:
        fires = repositories.list_fires(session, "nightly", 1000)
    assert sorted(fire.due_at for fire in fires if fire.due_at) == [
        BEGIN + timedelta(hours=hour) for hour in range(1, HOURS + 1)
    ]
    assert sorted(sweeps(store)) == sorted(fire.sweep_id for fire in fires if fire.sweep_id)
    assert len(sweeps(store)) == HOURS


def test_without_the_claim_they_would(url: str, store: Store) -> None:
    race(url, safe=False)
    assert len(sweeps(store)) > HOURS


@pytest.mark.parametrize("after_storing", [False, True])
def test_one_that_is_killed_while_it_submits_leaves_one_sweep(url: str, store: Store, after_storing: bool) -> None:
    receiver, sender = SPAWN.Pipe(duplex=False)
    dead = SPAWN.Process(target=dies, args=(url, sender, after_storing))
    with running(dead):
        assert receiver.poll(PATIENCE_S)
        os.kill(int(dead.pid or 0), signal.SIGKILL)
        dead.join(PATIENCE_S)
    now = BEGIN + timedelta(hours=1) + LEASE + timedelta(seconds=1)

    tried = []

    def submit(_: Document, *, sweep_id: str, key_id: str | None = None) -> str:
        tried.append(sweep_id)
        store_sweep(store, sweep_id, now)
        return sweep_id

    with ThreadPoolExecutor(1) as executor:
        (begun,) = Scheduler(store, submit, "next", lambda: now).run_pass(executor)
        begun.result(PATIENCE_S)
    with store.reading() as session:
        (fire,) = repositories.list_fires(session, "nightly", 10)
    assert (fire.state, fire.attempts) == (FireState.SUBMITTED, 2)
    assert sweeps(store) == [fire.sweep_id]
    assert tried == ([] if after_storing else [fire.sweep_id])
