"""Schedules fire: each time once, whoever is there and whoever dies. The clock is handed in; nothing waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from service.dispatch.scheduler import LEASE, MOST_ATTEMPTS, Scheduler, scheduling
from service.domain.document import Document
from service.domain.errors import Problems
from service.domain.schedule import Cause, Missed
from service.store import Store, StoreError, open_store, repositories
from service.store.records import NewSweep, UnknownRecord
from service.store.schedule_records import Fire, FireState, ScheduleFields

MATRIX = {"name": "nightly", "engine": {"model": "tiny:llama"}}
BEGIN = datetime(2026, 11, 1, 12, tzinfo=UTC)
DUE = datetime(2026, 11, 2, 2, 30, tzinfo=UTC)


class Clock:
    def __init__(self, now: datetime = BEGIN) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


class Submissions:
    """Stores a sweep for each document, as a controller does."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.ids: list[str] = []
        self.keys: list[str | None] = []
        self.before: Callable[[], None] = lambda: None

    def __call__(self, document: Document, *, sweep_id: str, key_id: str | None) -> str:
        self.before()
        self.keys.append(key_id)
        new = NewSweep(sweep_id, document.tree["name"], self._clock(), "me", document.tree, {})
        with self._store.transaction() as session:
            repositories.create_sweep(session, new, [])
        self.ids.append(sweep_id)
        return sweep_id


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'shardproof.db'}")
    yield store
    store.close()


@pytest.fixture
def executor() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def submitted(store: Store, clock: Clock) -> Submissions:
    return Submissions(store, clock)


def add(store: Store, missed: Missed = Missed.SKIP, cron: str = "30 2 * * *", name: str = "nightly") -> None:
    with store.transaction() as session:
        repositories.create_schedule(session, name, ScheduleFields(cron, "UTC", missed, False, MATRIX), BEGIN)


def fires(store: Store) -> list[Fire]:
    with store.reading() as session:
        return repositories.list_fires(session, "nightly", 100)[::-1]


def run_pass(scheduler: Scheduler, executor: Executor) -> int:
    """How many submissions a pass began; all of them have ended."""
    begun = scheduler.run_pass(executor)
    done, _ = wait(begun, timeout=60)
    assert len(done) == len(begun)
    return len(begun)


def test_nothing_fires_before_its_time(store: Store, clock: Clock, submitted: Submissions, executor: Executor) -> None:
    add(store)
    scheduler = Scheduler(store, submitted, "a", clock)
    clock.now = DUE - timedelta(microseconds=1)
    assert run_pass(scheduler, executor) == 0
    assert scheduler.wait_s() < 1


def test_its_sweeps_count_as_those_of_the_key_that_made_it(
    store: Store, clock: Clock, submitted: Submissions, executor: Executor
) -> None:
    written = ScheduleFields("30 2 * * *", "UTC", Missed.SKIP, False, MATRIX)
    with store.transaction() as session:
        repositories.create_schedule(session, "keyed", written, BEGIN, key_id="key-1")
    add(store)
    clock.now = DUE
    assert run_pass(Scheduler(store, submitted, "a", clock), executor) == 2
    assert sorted(submitted.keys, key=str) == [None, "key-1"]


def test_a_time_fires_once_and_its_sweep_is_recorded(
    store: Store, clock: Clock, submitted: Submissions, executor: Executor
) -> None:
    add(store)
    scheduler = Scheduler(store, submitted, "a", clock)
    clock.now = DUE
    assert [run_pass(scheduler, executor) for _ in range(3)] == [1, 0, 0]
    (fire,) = fires(store)
    assert (fire.due_at, fire.cause, fire.state) == (DUE, Cause.DUE, FireState.SUBMITTED)
    assert submitted.ids == [fire.sweep_id] == ["20261102-023000-000001"]


@pytest.mark.parametrize(("missed", "count"), [(Missed.SKIP, 0), (Missed.ONCE, 1)])
def test_after_a_week_without_a_controller(
    store: Store, clock: Clock, submitted: Submissions, executor: Executor, missed: Missed, count: int
) -> None:
    add(store, missed)
    clock.now = DUE + timedelta(days=7, hours=1)
    scheduler = Scheduler(store, submitted, "a", clock)
    assert run_pass(scheduler, executor) == count
    assert [fire.due_at for fire in fires(store)] == [DUE + timedelta(days=7)]
    clock.now = DUE + timedelta(days=8)
    assert run_pass(scheduler, executor) == 1


@pytest.mark.slow
def test_two_controllers_in_step_over_many_hours(store: Store, clock: Clock, executor: Executor) -> None:
    add(store, cron="0 * * * *")
    one, other = Submissions(store, clock), Submissions(store, clock)
    both = [Scheduler(store, one, "a", clock), Scheduler(store, other, "b", clock)]
    for hour in range(1, 200):
        clock.now = BEGIN + timedelta(hours=hour)
        start = threading.Barrier(2)

        def together(scheduler: Scheduler, start: threading.Barrier = start) -> int:
            start.wait(10)
            return run_pass(scheduler, executor)

        with ThreadPoolExecutor(2) as pair:
            assert sum(pair.map(together, both)) == 1
    assert [fire.due_at for fire in fires(store)] == [BEGIN + timedelta(hours=hour) for hour in range(100, 200)]
    assert len({*one.ids, *other.ids}) == len(one.ids) + len(other.ids) == 199


def test_what_is_wrong_with_one_schedule_is_its_own_finding(
    store: Store, clock: Clock, submitted: Submissions, executor: Executor
) -> None:
    add(store)
    add(store, name="other")

    def refuse_once() -> None:
        submitted.before = lambda: None
        raise Problems().stop("unknown-key", "no key is called seeed", ("engine", "seeed"), "Did you mean seed?")

    submitted.before = refuse_once
    clock.now = DUE
    with ThreadPoolExecutor(1) as in_turn:
        assert run_pass(Scheduler(store, submitted, "a", clock), in_turn) == 2
    with store.reading() as session:
        found = [repositories.list_fires(session, name, 1)[0] for name in ("nightly", "other")]
    assert sorted(fire.state for fire in found) == [FireState.FAILED, FireState.SUBMITTED]
    failed = next(fire for fire in found if fire.state is FireState.FAILED)
    assert failed.detail is not None
    assert "seeed: no key is called seeed. Did you mean seed?" in failed.detail


def test_what_takes_long_is_not_taken_over(
    store: Store, clock: Clock, submitted: Submissions, executor: Executor
) -> None:
    add(store)
    go_on = threading.Event()
    submitted.before = lambda: (go_on.wait(60), None)[1]
    mine, other = Scheduler(store, submitted, "a", clock), Scheduler(store, submitted, "b", clock)
    clock.now = DUE
    (begun,) = mine.run_pass(executor)
    for _ in range(5):
        clock.now += LEASE - timedelta(seconds=1)
        assert mine.run_pass(executor) == []
        assert other.run_pass(executor) == []
    go_on.set()
    begun.result(60)
    assert [fire.state for fire in fires(store)] == [FireState.SUBMITTED]
    assert len(submitted.ids) == 1


@pytest.mark.parametrize("stored", [False, True])
def test_the_claim_of_a_dead_controller_is_served_by_the_next(
    store: Store, clock: Clock, submitted: Submissions, executor: Executor, stored: bool
) -> None:
    """Whether it died before its sweep was stored or after: there is one in the end."""
    add(store)
    clock.now = DUE

    def dies(document: Document, *, sweep_id: str, key_id: str | None) -> str:
        if stored:
            submitted(document, sweep_id=sweep_id, key_id=key_id)
        raise StoreError("as if it had been killed: nothing more is recorded")

    assert run_pass(Scheduler(store, dies, "a", clock), executor) == 1
    next_one = Scheduler(store, submitted, "b", clock)
    assert run_pass(next_one, executor) == 0
    clock.now += LEASE + timedelta(seconds=1)
    assert run_pass(next_one, executor) == 1
    (fire,) = fires(store)
    assert fire.state is FireState.SUBMITTED
    assert submitted.ids == [fire.sweep_id]


def test_one_that_stood_still_and_goes_on_stores_no_second_sweep(
    store: Store, clock: Clock, submitted: Submissions, executor: Executor
) -> None:
    """Its lease has run out meanwhile, and another one has served the time."""
    add(store)
    go_on = threading.Event()
    slow = Submissions(store, clock)
    slow.before = lambda: (go_on.wait(60), None)[1]
    clock.now = DUE
    (begun,) = Scheduler(store, slow, "a", clock).run_pass(executor)
    clock.now += LEASE + timedelta(seconds=1)
    assert run_pass(Scheduler(store, submitted, "b", clock), executor) == 1
    go_on.set()
    begun.result(60)
    (fire,) = fires(store)
    assert (fire.state, fire.sweep_id, slow.ids) == (FireState.SUBMITTED, submitted.ids[0], [])


def test_a_submission_that_every_controller_dies_of_is_given_up(store: Store, clock: Clock, executor: Executor) -> None:
    add(store)
    clock.now = DUE
    tried = 0

    def dies(_: Document, *, sweep_id: str, key_id: str | None) -> str:
        nonlocal tried
        tried += 1
        raise StoreError("killed")

    for _ in range(MOST_ATTEMPTS + 2):
        run_pass(Scheduler(store, dies, "a", clock), executor)
        clock.now += LEASE + timedelta(seconds=1)
    (fire,) = fires(store)
    assert (fire.state, tried) == (FireState.FAILED, MOST_ATTEMPTS)
    assert str(MOST_ATTEMPTS) in str(fire.detail)


def test_who_asks_is_given_the_sweep_at_once(store: Store, clock: Clock, submitted: Submissions) -> None:
    add(store)
    scheduler = Scheduler(store, submitted, "a", clock)
    assert [scheduler.fire("nightly").sweep_id for _ in range(2)] == submitted.ids
    assert len(submitted.ids) == 2
    assert {fire.cause for fire in fires(store)} == {Cause.ASKED}
    with pytest.raises(UnknownRecord):
        scheduler.fire("nope")


def test_the_thread_fires_what_is_due_and_ends_with_its_block(store: Store, submitted: Submissions) -> None:
    """By the real clock: of a schedule that was written years ago New Year was missed."""
    fields = ScheduleFields("0 0 1 1 *", "UTC", Missed.ONCE, False, MATRIX)
    with store.transaction() as session:
        repositories.create_schedule(session, "nightly", fields, datetime(2020, 6, 1, tzinfo=UTC))
    fired = threading.Event()
    submitted.before = fired.set
    with scheduling(Scheduler(store, submitted)):
        assert fired.wait(60)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("schedule")]
    assert [fire.state for fire in fires(store)] == [FireState.SUBMITTED]
