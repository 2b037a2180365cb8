"""Which faults go unseen when a check is left out: what each of them is there for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from workers.protocol import INVARIANTS
from workers.selftest.catalogue import RESIDUAL
from workers.selftest.judge import DEMANDS

Row = dict[str, Any]
"""One fault, see :meth:`workers.selftest.__main__.SelfTest.judge`."""


def without_check(rows: Sequence[Row], check: str) -> list[Row]:
    """Faults that nothing but ``check`` finds."""
    return [row for row in rows if row["found_by"] == [check]]


def without_demand(rows: Sequence[Row], demand: str) -> list[Row]:
    """Faults that go unseen when the comparison does not make ``demand``, whatever the invariants find."""
    return [row for row in without_check(rows, RESIDUAL) if not row["without"].get(demand, True)]


def table(rows: Sequence[Row]) -> str:
    """A table in Markdown: what is left out, how many faults find it, how many go unseen then, and which."""
    lines = ["| left out | finds | unseen without it | which |", "|---|---:|---:|---|"]
    for check in (RESIDUAL, *INVARIANTS):
        finds = sum(check in row["found_by"] for row in rows)
        name = "the comparison of residuals" if check == RESIDUAL else f"`{check}`"
        lines.append(_line(name, str(finds), without_check(rows, check)))
    lines += [_line(f"of the comparison: {demand}", "", without_demand(rows, demand)) for demand in DEMANDS]
    return "\n".join(lines) + "\n"


def _line(name: str, finds: str, unseen: Sequence[Row]) -> str:
    kinds = Counter(row["kind"] for row in unseen)
    which = ", ".join(f"`{kind}`" + (f" ×{count}" if count > 1 else "") for kind, count in sorted(kinds.items()))
    return f"| {name} | {finds} | {len(unseen)} | {which or 'none'} |"
