from __future__ import annotations

import json
import math
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from service.store import Store, StoreError, open_store, repositories
from service.store.database import create_engine, upgrade
from service.store.plain import dump_json
from service.store.records import NewEvent, UnknownRecord
from store.samples import SWEEP, add_sweep, sweep


def test_upgrading_twice_changes_nothing(url: str) -> None:
    first = open_store(url)
    add_sweep(first)
    first.close()
    with open_store(url).reading() as session:
        assert repositories.get_sweep(session, SWEEP).id == SWEEP


@pytest.mark.parametrize("round_", range(3))
def test_controllers_that_start_at_once_share_one_upgrade(url: str, round_: int) -> None:
    run_together(lambda _: upgrade(url), count=4)
    with create_engine(url).connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM alembic_version")) == 1


def test_sqlite_keeps_a_write_ahead_log(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'shardproof.db'}")
    with store.reading() as session:
        assert session.scalar(text("PRAGMA journal_mode")) == "wal"
        assert session.scalar(text("PRAGMA foreign_keys")) == 1
        assert session.scalar(text("PRAGMA busy_timeout")) > 0
    store.close()


def test_an_event_belongs_to_a_sweep_that_is_there(store: Store) -> None:
    with pytest.raises(IntegrityError), store.transaction() as session:
        repositories.add_events(session, [NewEvent("no-such-sweep", 1.0, "phase")])


def test_folders_with_odd_names_are_made(tmp_path: Path) -> None:
    open_store(f"sqlite:///{tmp_path}/a%20b %s/deep/shardproof.db").close()
    assert len(list(tmp_path.rglob("shardproof.db"))) == 1


def test_a_unit_of_work_that_fails_leaves_nothing(store: Store) -> None:
    def fail_halfway() -> None:
        with store.transaction() as session:
            repositories.create_sweep(session, sweep(), [])
            raise RuntimeError("halfway")

    with pytest.raises(RuntimeError, match="halfway"):
        fail_halfway()
    with store.reading() as session:
        assert repositories.list_sweeps(session, limit=10) == []


def test_what_a_reader_changes_is_not_kept(store: Store) -> None:
    add_sweep(store)
    with store.reading() as session:
        repositories.end_sweep(session, SWEEP)
    with store.reading() as session:
        assert repositories.get_sweep(session, SWEEP).ended_at is None


def test_writers_in_two_threads_both_succeed(store: Store) -> None:
    add_sweep(store)

    def write(thread: int) -> None:
        for _ in range(25):
            with store.transaction() as session:
                seen = len(repositories.events_after(session, SWEEP, 0, 1000))
                repositories.add_events(session, [NewEvent(SWEEP, 1.0, "phase", data={"seen": seen, "by": thread})])

    run_together(write, count=2)
    with store.reading() as session:
        events = repositories.events_after(session, SWEEP, 0, 1000)
    # Each writer saw all that was written before it: none read an old picture.
    assert [event.data["seen"] for event in events] == list(range(50))


def test_a_reader_sees_one_state_while_others_write(store: Store) -> None:
    add_sweep(store)
    with store.reading() as session:
        assert repositories.events_after(session, SWEEP, 0, 10) == []
        with store.transaction() as writing:
            repositories.add_events(writing, [NewEvent(SWEEP, 1.0, "phase")])
        assert repositories.events_after(session, SWEEP, 0, 10) == []
    with store.reading() as session:
        assert len(repositories.events_after(session, SWEEP, 0, 10)) == 1


def test_text_from_outside_is_kept_as_far_as_a_database_can(store: Store) -> None:
    odd = "a\0b\ud800c — ü"
    add_sweep(store, name=odd)
    with store.reading() as session:
        assert repositories.get_sweep(session, SWEEP).name == "a\N{REPLACEMENT CHARACTER}b?c — ü"
        with pytest.raises(UnknownRecord):
            repositories.get_sweep(session, odd)


def test_a_reader_does_not_wait_for_a_writer(store: Store) -> None:
    add_sweep(store)
    with store.transaction() as writing:
        repositories.end_sweep(writing, SWEEP)
        writing.flush()
        began = time.monotonic()
        with store.reading() as session:
            assert repositories.get_sweep(session, SWEEP).ended_at is None
        assert time.monotonic() - began < 5


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "shardproof.db").write_text("not a database " * 100)
    with pytest.raises(StoreError, match=r"shardproof\.db.*SHARDPROOF_HOME"):
        open_store(f"sqlite:///{tmp_path}/shardproof.db")


@pytest.mark.parametrize("url", ["nonsense", "nosuchdatabase://host/name", "sqlite:////dev/null/x/shardproof.db"])
def test_a_url_that_cannot_be_opened_is_named(url: str) -> None:
    with pytest.raises(StoreError, match="cannot open database"):
        open_store(url)


def test_a_password_is_not_shown() -> None:
    with pytest.raises(StoreError) as caught:
        open_store("nosuchdatabase://user:hunter2@host/name")
    assert "hunter2" not in str(caught.value)


def test_a_database_of_a_newer_version_is_refused(url: str) -> None:
    upgrade(url)
    with create_engine(url).begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreError, match="another version of Shardproof"):
        open_store(url)


def test_numbers_that_json_lacks_are_named() -> None:
    stored = json.loads(dump_json({"a": [math.inf, -math.inf, (math.nan, 1.5)], "b": True}))
    assert stored == {"a": ["Infinity", "-Infinity", ["NaN", 1.5]], "b": True}


def run_together(work: Any, count: int) -> None:
    """Run ``work(0)``, ``work(1)``, … in threads that start together, and raise what one of them raised."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(count)

    def attempt(number: int) -> None:
        barrier.wait()
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=attempt, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
