"""Rows for a database, as fast as it takes them: COPY, or one prepared statement.

Columns that a row does not name get a value of their type.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Column, Connection, Table

from service.reads.shape import BEGIN

Row = dict[str, Any]


def insert(connection: Connection, model: Any, rows: Sequence[Row]) -> None:
    """``rows`` all have the same columns."""
    if not rows:
        return
    table = model.__table__
    assert isinstance(table, Table)
    rest = {column.name: _any_value(column) for column in table.columns if _is_owed(column, rows[0])}
    columns = ", ".join([*rows[0], *rest])
    values = [(*row.values(), *rest.values()) for row in rows]
    cursor: Any = connection.connection.cursor()
    if connection.dialect.name == "sqlite":
        places = ", ".join("?" * len(values[0]))
        cursor.executemany(f"INSERT INTO {table.name} ({columns}) VALUES ({places})", values)
    else:
        with cursor.copy(f"COPY {table.name} ({columns}) FROM STDIN") as copy:
            for row in values:
                copy.write_row(row)
    cursor.close()


def _is_owed(column: Column[Any], row: Row) -> bool:
    counted = bool(column.primary_key and isinstance(column.type, sa.Integer))
    return not (column.name in row or column.nullable or column.server_default is not None or counted)


def _any_value(column: Column[Any]) -> Any:
    if column.default is not None and column.default.is_scalar:
        return column.default.arg  # type: ignore[attr-defined]
    kind = column.type.impl_instance if isinstance(column.type, sa.TypeDecorator) else column.type
    if isinstance(kind, sa.JSON):
        return "{}"
    return {bool: False, int: 0, float: 0.0, datetime: stamp(0)}.get(kind.python_type, "")


def stamp(hour: int, minutes: int = 0) -> str:
    """A moment in the text form that both databases read."""
    return f"{BEGIN + timedelta(hours=hour, minutes=minutes):%Y-%m-%d %H:%M:%S}.000000"
