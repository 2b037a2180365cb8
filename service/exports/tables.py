"""A table with a row for each cell, as CSV and as Parquet. What was not looked at is empty, never zero."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from typing import Any

from service.report import SCHEMA

Json = Mapping[str, Any]

COLUMNS: dict[str, type] = {
    "sweep": str,
    "sweep_name": str,
    "cell": str,
    "name": str,
    "state": str,
    "verdict": str,
    "ok": bool,
    "expect": str,
    "duplicate_of": str,
    "started_at": str,
    "ended_at": str,
    "cold_s": float,
    "warm_s": float,
    "sp_expected": int,
    "sp_matched": int,
    "fallback_calls": int,
    "residual_bitwise_equal": bool,
    "residual_worst_score": float,
    "residual_site": str,
    "residual_rank": int,
    "residual_pattern": str,
    "outputs": str,
    "environment": str,
    "vllm": str,
    "torch": str,
    "requested": str,
    "reasons": str,
    "reproduce": str,
}
"""Columns and their types, in order. Added at the end, never renamed."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_table(report: Json) -> bytes:
    """RFC 4180 in UTF-8, with the names of the columns first.

    Text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, COLUMNS)
    writer.writeheader()
    writer.writerows({key: _plain(value) for key, value in row.items()} for row in rows(report))
    return file.getvalue().encode()


def parquet_table(report: Json) -> bytes:
    """The same columns with their types; ``schema`` in the file's metadata names the report's."""
    # The other exports are sooner done without.
    import pyarrow
    from pyarrow import parquet

    types = {str: pyarrow.string(), float: pyarrow.float64(), int: pyarrow.int64(), bool: pyarrow.bool_()}
    schema = pyarrow.schema(
        [(name, types[of]) for name, of in COLUMNS.items()], metadata={"schema": SCHEMA, "sweep": report["sweep"]["id"]}
    )
    file = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows(report), schema=schema), file)
    return file.getvalue()


def rows(report: Json) -> list[dict[str, Any]]:
    """Each cell by the names of ``COLUMNS``."""
    return [_row(cell, report["sweep"]) for cell in report["cells"]]


def _row(cell: Json, sweep: Json) -> dict[str, Any]:
    sp = cell["exercised"]["sequence_parallelism"] or {}
    residual = cell["residual"] or {}
    wrong = residual.get("first_divergence") or {}
    worst = residual.get("worst_score")
    return {
        "sweep": sweep["id"],
        "sweep_name": sweep["name"],
        "cell": cell["id"],
        **{key: cell[key] for key in ("name", "state", "verdict", "ok")},
        "expect": " ".join(cell["expect"]),
        **{key: cell[key] for key in ("duplicate_of", "started_at", "ended_at")},
        "cold_s": (cell["compile"]["cold"] or {}).get("total_s"),
        "warm_s": (cell["compile"]["warm"] or {}).get("total_s"),
        "sp_expected": sp.get("expected"),
        "sp_matched": sp.get("matched"),
        "fallback_calls": (cell["fallback"] or {}).get("calls"),
        "residual_bitwise_equal": residual.get("bitwise_equal"),
        # What is not finite is a string in a report.
        "residual_worst_score": None if worst is None else float(worst),
        "residual_site": wrong.get("site"),
        "residual_rank": wrong.get("rank"),
        "residual_pattern": wrong.get("pattern"),
        "outputs": (cell["outputs"] or {}).get("class"),
        "environment": cell["environment"]["name"],
        "vllm": cell["environment"]["vllm"],
        "torch": cell["environment"]["torch"],
        "requested": json.dumps(cell["requested"], ensure_ascii=False),
        "reasons": "\n".join(cell["reasons"]),
        "reproduce": cell["reproduce"],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
