"""A row in every table, whichever tables there are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Column, Connection, MetaData, Table

REVISION, NUMBERS = "alembic_version", "numbers"


def fill(connection: Connection, tables: MetaData) -> None:
    """Put one row into each of ``tables``, parents first; a row refers to that of its parent.

    The numbers that the database comes with are all there are.
    """
    made: dict[tuple[str, str], Any] = {}
    for table in tables.sorted_tables:
        if table.name not in (REVISION, NUMBERS):
            row = {column.name: _value(table, column, made) for column in table.columns if not _counted(column)}
            keys = connection.execute(table.insert(), row).inserted_primary_key
            assert keys is not None
            made.update({(table.name, name): value for name, value in (row | keys._asdict()).items()})


def _counted(column: Column[Any]) -> bool:
    """The database gives it a number of its own."""
    return bool(column.primary_key and isinstance(column.type, sa.Integer) and len(column.table.primary_key) == 1)


def _value(table: Table, column: Column[Any], made: dict[tuple[str, str], Any]) -> Any:
    for key in column.foreign_keys:
        parent = key.column
        if parent.table is not table and (parent.table.name, parent.name) in made:
            return made[parent.table.name, parent.name]
    if column.nullable:
        return None
    return _plain(column)


def _plain(column: Column[Any]) -> Any:
    kind = column.type.impl_instance if isinstance(column.type, sa.TypeDecorator) else column.type
    if isinstance(kind, sa.JSON):
        return {"column": column.name}
    if isinstance(kind, sa.LargeBinary):
        return column.name.encode()
    values = {datetime: datetime(2026, 11, 30, tzinfo=UTC), bool: True, int: 1, float: 1.0}
    return values.get(kind.python_type, column.name)
