"""What goes unseen when a check is left out."""

from __future__ import annotations

from typing import Any

from workers.protocol import INVARIANTS
from workers.selftest.escapes import table, without_check, without_demand
from workers.selftest.judge import BITS, COMPLETENESS, DEMANDS


def row(kind: str, *found_by: str, **without: bool) -> dict[str, Any]:
    return {"kind": kind, "found_by": sorted(found_by), "without": {BITS: True, COMPLETENESS: True} | without}


ROWS = [
    row("one-ulp", "residual", **{BITS: False}),
    row("one-ulp", "residual", "token-order", **{BITS: False}),
    row("nan", "residual"),
    row("norm-weight", "norm-weights-equal"),
]


def test_a_fault_escapes_when_the_only_check_that_finds_it_is_left_out() -> None:
    assert [found["kind"] for found in without_check(ROWS, "norm-weights-equal")] == ["norm-weight"]
    assert without_check(ROWS, "token-order") == []
    assert len(without_check(ROWS, "residual")) == 2


def test_a_fault_escapes_a_comparison_that_demands_less_unless_an_invariant_finds_it() -> None:
    assert without_demand(ROWS, BITS) == [ROWS[0]]
    assert without_demand(ROWS, COMPLETENESS) == []


def test_the_table_has_a_line_for_every_check_and_demand() -> None:
    lines = table(ROWS).splitlines()
    assert len(lines) == 2 + 1 + len(INVARIANTS) + len(DEMANDS)
    assert "| the comparison of residuals | 3 | 2 | `nan`, `one-ulp` |" in lines
    assert "| `norm-weights-equal` | 1 | 1 | `norm-weight` |" in lines
    assert "| `token-order` | 1 | 0 | none |" in lines
