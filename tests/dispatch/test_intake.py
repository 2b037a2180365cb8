"""Events and a database that is away for a while: a real SQLite file whose disk is full."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError
from store.samples import SWEEP, add_sweep

from dispatch.scripted import until
from service.dispatch import intake as module
from service.dispatch.intake import Intake
from service.dispatch.patience import Away, patiently
from service.store import Store, repositories
from service.store.database import create_engine, upgrade
from service.store.records import NewEvent


class Disk:
    """Lets the database grow, or not. SQLite itself says that the disk is full."""

    def __init__(self, path: Path) -> None:
        url = f"sqlite:///{path}"
        upgrade(url)
        engine = create_engine(url)
        self.full = False
        event.listen(engine, "begin", self._limit, insert=True)
        self.store = Store(engine)

    def _limit(self, connection: object) -> None:
        pages = 1 if self.full else 1_000_000
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")  # type: ignore[attr-defined]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path / "shardproof.db")
    add_sweep(disk.store)
    yield disk
    disk.store.close()


def happened(number: int) -> NewEvent:
    return NewEvent(SWEEP, float(number), "phase", data={"number": number, "text": "x" * 5000})


def stored(store: Store) -> list[int]:
    with store.reading() as session:
        return [item.data["number"] for item in repositories.events_after(session, SWEEP, 0, 100_000)]


def test_events_are_stored_in_their_order_when_flushed(disk: Disk) -> None:
    intake = Intake(disk.store)
    for number in range(1200):
        intake.put(happened(number))
    intake.flush()
    assert stored(disk.store) == list(range(1200))
    intake.close(5)


def test_none_is_lost_while_the_database_is_away(disk: Disk) -> None:
    intake = Intake(disk.store)
    disk.full = True
    for number in range(300):
        intake.put(happened(number))
    flushed = threading.Thread(target=intake.flush)
    flushed.start()
    flushed.join(0.5)
    assert flushed.is_alive(), "it waits"
    assert stored(disk.store) == []
    disk.full = False
    flushed.join(30)
    assert stored(disk.store) == list(range(300))
    intake.close(5)


def test_who_brings_more_than_can_wait_waits_too(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 10)
    monkeypatch.setattr(module, "BATCH", 5)
    intake, brought = Intake(disk.store), []
    disk.full = True

    def bring() -> None:
        for number in range(100):
            intake.put(happened(number))
            brought.append(number)

    bringing = threading.Thread(target=bring)
    bringing.start()
    bringing.join(0.5)
    assert bringing.is_alive()
    assert len(brought) <= 16
    disk.full = False
    bringing.join(30)
    intake.flush()
    assert stored(disk.store) == list(range(100))
    intake.close(5)


def test_whoever_leaves_does_not_wait_for_ever(disk: Disk) -> None:
    intake = Intake(disk.store)
    disk.full = True
    intake.put(happened(0))
    intake.close(0.3)
    assert stored(disk.store) == []


def test_a_mistake_is_not_waited_for(disk: Disk) -> None:
    def wrong() -> None:
        with disk.store.reading() as session:
            session.execute(text("SELECT x FROM nowhere"))

    with pytest.raises(OperationalError, match="no such table"):
        patiently(wrong, threading.Event())


def test_a_unit_of_work_is_done_once_when_the_disk_has_room_again(disk: Disk) -> None:
    tries: list[bool] = []

    def work() -> None:
        tries.append(disk.full)
        with disk.store.transaction() as session:
            repositories.add_events(session, [happened(number) for number in range(50)])

    disk.full = True
    waiting = threading.Thread(target=patiently, args=(work, threading.Event()))
    waiting.start()
    until(lambda: len(tries) > 1)
    disk.full = False
    waiting.join(30)
    assert stored(disk.store) == list(range(50))
    given_up = threading.Event()
    given_up.set()
    disk.full = True
    with pytest.raises(Away, match="full"):
        patiently(work, given_up)


def test_one_event_that_cannot_be_stored_takes_no_other_along(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = [happened(0), NewEvent("no-such-sweep", 0.0, "phase"), happened(1), None]
    monkeypatch.setattr(Intake, "_next", lambda _: batch)
    Intake(disk.store).close(5)
    assert stored(disk.store) == [0, 1]
