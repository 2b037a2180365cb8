"""What the API says when the database cannot do what is asked of it. A real database that cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import event, text

from api.client import Client, StoringController, make_client
from api.keyed import bearer, make_key
from service.store import Store, open_store
from service.store.database import create_engine

MATRIX = {"name": "nightly", "engine": {"model": "tiny:llama"}}


@pytest.fixture
def full(tmp_path: Path) -> Store:
    """SQLite that has its tables and may take no page more."""
    url = f"sqlite:///{tmp_path / 'shardproof.db'}"
    open_store(url).close()
    engine = create_engine(url)
    event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA max_page_count = 1"))
    return Store(engine)


def large() -> dict[str, object]:
    return MATRIX | {"name": "n" * 50_000}


def test_a_full_disk_refuses_a_sweep_and_stores_nothing_of_it(full: Store) -> None:
    client = make_client(full, StoringController(full))
    answer = client.post("/v1/sweeps", json=large())
    assert (answer.status_code, answer.json()["code"]) == (503, "database-full")
    assert answer.headers["content-type"] == "application/problem+json"
    assert "nothing was changed" in answer.json()["detail"]
    assert int(answer.headers["retry-after"]) > 0
    assert client.get("/v1/sweeps").json()["sweeps"] == []


def test_with_room_the_same_sweep_is_taken(client: Client) -> None:
    assert client.post("/v1/sweeps", json=large()).status_code == 201


def test_a_database_that_may_not_be_written_is_still_read(postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    with engine.begin() as connection:
        name = connection.scalar(text("SELECT current_database()"))
        connection.exec_driver_sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    engine.dispose()
    store = Store(create_engine(postgres_url))
    client = make_client(store, StoringController(store))
    answer = client.post("/v1/sweeps", json=MATRIX)
    assert (answer.status_code, answer.json()["code"]) == (503, "database-read-only")
    assert client.get("/v1/sweeps").status_code == 200
    store.close()


def test_a_database_that_is_away_says_so_also_of_health(postgres_url: str) -> None:
    store = Store(create_engine(postgres_url.replace("host=", "host=/nowhere")))
    client = make_client(store)
    for path in ("/healthz", "/v1/sweeps"):
        answer = client.get(path)
        assert (answer.status_code, answer.json()["code"]) == (503, "database-away")
    store.close()


def test_a_key_opens_what_can_be_read_of_a_database_that_takes_nothing(postgres_url: str) -> None:
    open_store(postgres_url).close()
    store = Store(create_engine(postgres_url))
    headers = bearer(make_key(store))
    with store.transaction() as session:
        name = session.scalar(text("SELECT current_database()"))
        session.execute(text(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'))
    store.close()
    client = make_client(store, StoringController(store))
    assert client.get("/v1/sweeps", headers=headers).status_code == 200
    answer = client.post("/v1/sweeps", json=MATRIX, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (503, "database-read-only")
    store.close()


@pytest.mark.parametrize("first", [0, 4096], ids=["its header", "its pages"])
def test_a_damaged_database_is_said_to_be_one(tmp_path: Path, first: int) -> None:
    path = tmp_path / "shardproof.db"
    sound = open_store(f"sqlite:///{path}")
    assert make_client(sound).get("/v1/sweeps").status_code == 200
    sound.close()
    content = path.read_bytes()
    path.write_bytes(content[:first] + b"\xa5" * (len(content) - first))
    damaged = Store(create_engine(f"sqlite:///{path}"))
    client = make_client(damaged, StoringController(damaged))
    for answer in (client.get("/v1/sweeps"), client.post("/v1/sweeps", json=MATRIX), client.get("/healthz")):
        assert (answer.status_code, answer.json()["code"]) == (503, "database-damaged")
        assert "put a copy back" in answer.json()["detail"]
    damaged.close()
