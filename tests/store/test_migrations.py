"""Migrations make what the models say, on each database, and can be taken back with rows in the tables."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect

from service.store import Store
from service.store.database import alembic_config, create_engine, upgrade
from service.store.models import Base, CellRow
from service.store.queue_models import QueueRow
from store.rows import fill

REVISION = "alembic_version"


def migrate(engine: Engine, step: Callable[..., None], to: str) -> None:
    with engine.begin() as connection:
        step(alembic_config(connection), to)


def revisions() -> list[str]:
    """From the first to the newest."""
    with sa.create_engine("sqlite://").connect() as connection:
        script = ScriptDirectory.from_config(alembic_config(connection))
    return [revision.revision for revision in reversed(list(script.walk_revisions()))]


def counted(connection: Connection) -> dict[str, int]:
    """Rows of each table that is there."""
    tables = [name for name in inspect(connection).get_table_names() if name != REVISION]
    return {name: connection.scalar(sa.select(sa.func.count()).select_from(sa.table(name))) or 0 for name in tables}


def difference(engine: Engine) -> list[object]:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        return list(compare_metadata(context, Base.metadata))


def test_migrations_make_exactly_the_tables_of_the_models(url: str) -> None:
    upgrade(url)
    assert difference(create_engine(url)) == []


@pytest.mark.parametrize(
    "change",
    [
        "DROP INDEX ix_events_sweep_id_id",
        "ALTER TABLE runs ADD COLUMN more TEXT",
        "ALTER TABLE runs DROP COLUMN failure",
        "DROP TABLE arms",
    ],
)
def test_a_difference_from_the_models_is_seen(url: str, change: str) -> None:
    upgrade(url)
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(change)
    assert difference(engine) != []


def test_there_is_one_newest_revision() -> None:
    with sa.create_engine("sqlite://").connect() as connection:
        assert len(ScriptDirectory.from_config(alembic_config(connection)).get_heads()) == 1


def test_migrations_can_be_taken_back_with_rows_in_every_table(url: str) -> None:
    upgrade(url)
    engine = create_engine(url)
    with engine.begin() as connection:
        fill(connection, Base.metadata)
        before = counted(connection)
    assert before
    assert all(count > 0 for count in before.values())
    for revision in reversed(revisions()[:-1]):
        migrate(engine, command.downgrade, revision)
        with engine.connect() as connection:
            left = counted(connection)
        assert left.items() <= before.items(), f"rows were lost on the way down to {revision}"
    migrate(engine, command.downgrade, "base")
    assert inspect(engine).get_table_names() == [REVISION]


def test_rows_of_an_older_version_survive_each_upgrade(url: str) -> None:
    engine = create_engine(url)
    for older, newer in zip(revisions(), revisions()[1:], strict=False):
        migrate(engine, command.upgrade, older)
        with engine.begin() as connection:
            tables = sa.MetaData()
            tables.reflect(connection)
            fill(connection, tables)
            before = counted(connection)
        migrate(engine, command.upgrade, newer)
        with engine.connect() as connection:
            after = counted(connection)
        assert before
        assert all(count > 0 for count in before.values())
        assert before.items() <= after.items(), f"rows were lost on the way up to {newer}"
        migrate(engine, command.downgrade, "base")
    upgrade(url)
    assert difference(engine) == []


def test_what_was_remarked_of_cells_moves_with_them_and_back(url: str) -> None:
    engine = create_engine(url)
    migrate(engine, command.upgrade, "0011")
    with engine.begin() as connection:
        tables = sa.MetaData()
        tables.reflect(connection)
        fill(connection, tables)
        queue, cells = tables.tables["queue"], tables.tables["cells"]
        sweep_id, cell_id = connection.execute(sa.select(cells.c.sweep_id, cells.c.id)).one()
        before = {"traces": False, "notes": {cell_id: ["SP is off here"]}}
        connection.execute(sa.update(queue).values(sweep_id=sweep_id, places=before))
    migrate(engine, command.upgrade, "0012")
    with Store(engine).reading() as session:
        assert session.scalar(sa.select(CellRow.notes).where(CellRow.id == cell_id)) == ["SP is off here"]
        assert session.scalar(sa.select(QueueRow.places)) == {"traces": False}
    migrate(engine, command.downgrade, "0011")
    with engine.connect() as connection:
        assert connection.scalar(sa.select(queue.c.places)) == before
