"""How a database finds what a query asks for: does it read a whole table, or only what an index leads to?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, event

GROWING = ("cells", "runs", "events", "outcomes", "points", "schedule_fires", "deliveries")
"""Tables that grow with every sweep. No query may read all of one."""

LISTED = "sweeps"
"""It grows too; its list reads it from one end, along an index, as far as the page goes."""


@dataclass(frozen=True)
class Query:
    """As the driver was given it."""

    text: str
    parameters: Any


@contextmanager
def watched(engine: Engine) -> Iterator[list[Query]]:
    """The queries that are sent over ``engine`` meanwhile."""
    seen: list[Query] = []

    def see(_: Connection, __: Any, statement: str, parameters: Any, ___: Any, many: bool) -> None:
        if statement.lstrip().upper().startswith(("SELECT", "WITH")) and not many:
            seen.append(Query(statement, parameters))

    event.listen(engine, "before_cursor_execute", see)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", see)


def full_scans(connection: Connection, queries: Sequence[Query]) -> list[str]:
    """What each of ``queries`` reads all of, with the query; nothing when all is found by an index."""
    find = _sqlite if connection.dialect.name == "sqlite" else _postgresql
    return [f"{scan}: {query.text}" for query in queries for scan in find(connection, query)]


def _sqlite(connection: Connection, query: Query) -> list[str]:
    rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query.text}", query.parameters).all()
    steps = [str(row[-1]) for row in rows]
    return [step for step in steps if _reads_all(step, indexed=" INDEX " in step)]


def _reads_all(step: str, indexed: bool) -> bool:
    found = re.match(r"(SCAN|SEARCH) (\w+?)(_\d+)?\b", step)
    if found is None:
        return False
    if found[1] == "SEARCH":
        # From some place to the end: that may be all of it.
        return found[2] in GROWING and "=" not in step
    return found[2] in GROWING or (found[2] == LISTED and not indexed)


def _postgresql(connection: Connection, query: Query) -> list[str]:
    explained = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {query.text}", query.parameters).scalar_one()
    return [
        f"{node['Node Type']} on {node['Relation Name']}"
        for node in _nodes(explained[0]["Plan"])
        if node.get("Relation Name") in (*GROWING, LISTED) and _is_full(node)
    ]


def _nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for part in plan.get("Plans", []):
        yield from _nodes(part)


def _is_full(node: Mapping[str, Any]) -> bool:
    """An index that is read from end to end is a full scan too, except along the list of sweeps."""
    if node["Node Type"] == "Seq Scan":
        return True
    along = node["Node Type"] in ("Index Scan", "Index Only Scan") and "= " not in node.get("Index Cond", "")
    return along and node["Relation Name"] != LISTED
