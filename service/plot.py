"""A picture of what grows with the depth of a graph, drawn with rich: on the console, and as SVG for a file."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDTH = 48
"""Characters of the longest bar."""

VALUE = "last_op_s"
SVG_WIDTH = 96

_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Would be fetched from the network by whoever looks at the file."""


def growth(rows: Sequence[dict[str, Any]]) -> Table | None:
    """A bar for each depth, unpatched and patched, as long as the logarithm of its seconds; ``None`` without depths.

    On this scale what grows by the same factor with every layer makes a straight line.
    """
    found = [row for row in rows if "depth" in row]
    if not found:
        return None
    values = [row[VALUE] for row in found]
    table = Table(title="lowering the last operation of the chain, logarithmic", title_justify="left")
    for column in ("depth", "", "seconds", ""):
        table.add_column(column)
    for patched in (False, True):
        for row in found:
            if row["patched"] is patched:
                bar = Text("█" * _length(row[VALUE], min(values), max(values)), "green" if patched else "red")
                table.add_row(str(row["depth"]), "patched" if patched else "unpatched", f"{row[VALUE]:.4f}", bar)
        table.add_section()
    return table


def _length(value: float, lowest: float, highest: float) -> int:
    """1 for the lowest, ``WIDTH`` for the highest."""
    if lowest <= 0 or highest == lowest:
        return 1
    return 1 + round((WIDTH - 1) * math.log(value / lowest) / math.log(highest / lowest))


def svg(table: Table, title: str) -> str:
    """The table as a picture that needs nothing from elsewhere."""
    console = Console(record=True, file=io.StringIO(), width=SVG_WIDTH)
    console.print(table)
    return _FONTS.sub("", console.export_svg(title=title))
