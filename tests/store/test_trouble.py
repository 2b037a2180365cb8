"""A database that is full, that may not be written, that is busy or away: told apart, and nothing half done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.exc import IntegrityError

from service.store import Store, StoreError, StoreUnavailable, open_store, repositories
from service.store import database as database_module
from service.store.database import create_engine
from service.store.records import NewEvent
from service.store.trouble import Trouble
from store.samples import SWEEP, add_sweep, cell, sweep

KINDS = ("sqlite", "postgresql")


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database with one sweep, and somebody who has it open."""
    url = f"sqlite:///{tmp_path / 's.db'}" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    store = open_store(url)
    add_sweep(store)
    yield url
    store.close()


def is_sqlite(url: str) -> bool:
    return url.startswith("sqlite")


def read_only(url: str) -> Engine:
    if is_sqlite(url):
        return create_engine(f"sqlite:///file:{url.removeprefix('sqlite:///')}?mode=ro&uri=true")
    engine = create_engine(url)
    with engine.begin() as connection:
        name = connection.scalar(text("SELECT current_database()"))
        connection.exec_driver_sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    engine.dispose()
    return create_engine(url)


def full(url: str) -> Engine:
    """SQLite may have no page more; a server whose disk was filled says so of the next row that needs room."""
    engine = create_engine(url)
    if is_sqlite(url):
        event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA max_page_count = 1"))
        return engine
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$"
        )
        connection.exec_driver_sql("CREATE TRIGGER refuse BEFORE INSERT ON cells EXECUTE FUNCTION refuse()")
    return engine


def add_large_sweep(store: Store) -> None:
    """More than fits into the room that a page has left."""
    with store.transaction() as session:
        repositories.create_sweep(session, sweep("large"), [cell(f"c{number}") for number in range(100)])


def sweeps_of(url: str) -> list[str]:
    with Store(create_engine(url)).reading() as session:
        return [item.id for item in repositories.list_sweeps(session, limit=10)]


@pytest.mark.parametrize(("make", "trouble"), [(read_only, Trouble.READ_ONLY), (full, Trouble.FULL)])
def test_what_cannot_be_stored_is_refused_whole(url: str, make: Callable[[str], Engine], trouble: Trouble) -> None:
    store = Store(make(url))
    with pytest.raises(StoreUnavailable) as caught:
        add_large_sweep(store)
    assert caught.value.trouble is trouble
    assert "nothing was changed" in str(caught.value)
    assert sweeps_of(url) == [SWEEP]
    with store.reading() as session:
        assert repositories.get_sweep(session, SWEEP).id == SWEEP, "what is there can still be read"
    store.close()


def test_where_there_is_room_the_same_is_stored(url: str) -> None:
    store = Store(create_engine(url))
    add_large_sweep(store)
    store.close()
    assert sweeps_of(url) == ["large", SWEEP]


def test_who_waits_too_long_for_a_writer_is_told(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "BUSY_TIMEOUT_MS", 50)
    first, second = Store(create_engine(url)), Store(create_engine(url))
    with first.transaction() as session:
        repositories.end_sweep(session, SWEEP)
        session.flush()
        with pytest.raises(StoreUnavailable) as caught, second.transaction() as other:
            repositories.end_sweep(other, SWEEP)
    assert caught.value.trouble is Trouble.BUSY
    with second.transaction() as session:
        repositories.add_events(session, [NewEvent(SWEEP, 1.0, "phase")])
    first.close()
    second.close()


def cut(store: Store) -> None:
    """End every connection to the database but the own one."""
    with store.transaction() as session:
        session.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )


def break_off(store: Store, other: Store) -> None:
    """Write, and lose the connection before the commit."""
    with store.transaction() as session:
        repositories.end_sweep(session, SWEEP)
        session.flush()
        pid = session.scalar(text("SELECT pg_backend_pid()"))
        # Not by a writer: it would wait for the one that it is to end.
        with other.reading() as reading:
            reading.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})


def test_a_connection_that_breaks_costs_one_unit_of_work(postgres_url: str) -> None:
    store, other = open_store(postgres_url), open_store(postgres_url)
    add_sweep(store)
    with pytest.raises(StoreUnavailable) as caught:
        break_off(store, other)
    assert caught.value.trouble is Trouble.AWAY
    with store.transaction() as session:
        assert repositories.get_sweep(session, SWEEP).ended_at is None
        repositories.end_sweep(session, SWEEP)
    store.close()
    other.close()


def test_a_connection_that_broke_while_idle_is_replaced(postgres_url: str) -> None:
    store, other = open_store(postgres_url), open_store(postgres_url)
    add_sweep(store)
    cut(other)
    with store.transaction() as session:
        repositories.end_sweep(session, SWEEP)
    store.close()
    other.close()


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot open database .*SHARDPROOF_DATABASE_URL") as caught:
        open_store(f"postgresql://shardproof:hunter2@/runs?host={tmp_path}")
    assert "hunter2" not in str(caught.value)


def test_a_url_without_a_driver_is_opened(postgres_url: str) -> None:
    for scheme in ("postgresql", "postgres"):
        open_store(postgres_url.replace("postgresql+psycopg", scheme)).close()


def test_what_the_unit_of_work_does_wrong_is_no_trouble_of_the_database(store: Store) -> None:
    def add_twice() -> Any:
        add_sweep(store)
        add_sweep(store)

    with pytest.raises(IntegrityError):
        add_twice()
