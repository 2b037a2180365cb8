"""No query of the API reads a whole table, as the databases themselves say of a store that is not small."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from api.client import StoringController
from fastapi import FastAPI
from sqlalchemy import Engine, select, text

from service.app import create_app
from service.domain.keys import Scope
from service.keyring import Keyring
from service.reads.load import load
from service.reads.measure import measure
from service.reads.plans import GROWING, Query, full_scans, watched
from service.reads.questions import lists
from service.reads.series import load_series
from service.reads.shape import Shape
from service.reads.upkeep import load_upkeep
from service.settings import Settings
from service.store import Store
from service.store.database import create_engine, upgrade
from service.store.local_postgres import PostgresServer
from service.store.models import CellRow

SHAPE = Shape(runs=12_000, small=2, large=2)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer
) -> Iterator[Engine]:
    """A database with what there is to read."""
    sqlite = f"sqlite:///{tmp_path_factory.mktemp('plans') / 's.db'}"
    url = sqlite if request.param == "sqlite" else postgres.create("plans")
    upgrade(url)
    engine = create_engine(url)
    load(engine, SHAPE, load_series, load_upkeep)
    yield engine
    engine.dispose()
    if request.param == "postgresql":
        postgres.drop("plans")


@pytest.fixture(scope="module")
def app(engine: Engine) -> FastAPI:
    store = Store(engine)
    return create_app(Settings(), store, StoringController(store))


@pytest.fixture(scope="module")
def queries(engine: Engine, app: FastAPI) -> list[Query]:
    """All that is sent to the database when every list is read, and reports, each once in its form."""
    _, key = Keyring(Store(engine)).create("reads", Scope.ADMIN, None, "test")
    with watched(engine) as seen:
        asyncio.run(measure(app, SHAPE, 6, key))
    return list({query.text: query for query in seen}.values())


def test_nothing_that_is_read_over_the_api_needs_a_whole_table(engine: Engine, queries: list[Query]) -> None:
    assert {table for table in GROWING if any(f"FROM {table}" in query.text for query in queries)} == set(GROWING)
    with engine.connect() as connection:
        assert full_scans(connection, queries) == []


def test_every_list_of_the_api_was_read(app: FastAPI) -> None:
    found, _ = lists(app)
    assert {"/v1/sweeps", "/v1/sweeps/{sweep_id}/events"} <= {asked.path for asked in found}
    assert all(asked.cursor is not None for asked in found), "a list without a cursor cannot be read to its end"


def test_a_query_whose_indexes_are_gone_is_found(engine: Engine, queries: list[Query]) -> None:
    # SQLite's driver keeps the plans that a connection has explained.
    engine.dispose()
    with engine.begin() as connection:
        for index in ("ix_events_sweep_id_id", "ix_events_sweep_id_kind_cell_id_rank_id"):
            connection.execute(text(f"DROP INDEX {index}"))
        found = full_scans(connection, queries)
        connection.rollback()
    assert any("ORDER BY events.id" in scan for scan in found), "the list of events of a sweep"
    assert any("min(events.at)" in scan for scan in found), "what is known of one sweep"


def test_a_query_that_no_index_serves_is_found(engine: Engine) -> None:
    with watched(engine) as seen, Store(engine).reading() as session:
        session.execute(select(CellRow.id).where(CellRow.name == "cell 7")).all()
    with engine.connect() as connection:
        (scan,) = full_scans(connection, seen)
    assert "cells" in scan
