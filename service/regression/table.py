"""The rows of the benchmark as tables of a Markdown document, between two marks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

BEGIN, END = "<!-- bench regression -->\n", "<!-- end -->\n"


def tables(rows: Sequence[dict[str, Any]]) -> str:
    """A table for those of the same columns, in order."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row), []).append(row)
    return "\n".join("".join(_lines(columns, group)) for columns, group in groups.items())


def written(text: str, rows: Sequence[dict[str, Any]]) -> str:
    """``text`` with these rows between its marks.

    Raises:
        ValueError: it has no marks.
    """
    before, _, rest = text.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"there are no lines {BEGIN.strip()} and {END.strip()} between which the tables belong")
    return f"{before}{BEGIN}{tables(rows)}{END}{after}"


def _lines(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield f"| {' | '.join(column.replace('_', ' ') for column in columns)} |\n"
    yield f"|{'---|' * len(columns)}\n"
    for row in rows:
        yield f"| {' | '.join('–' if value is None else f'{value}' for value in row.values())} |\n"
