"""A report in the forms that other programs read: JUnit XML for CI, tables, and a page for people.

All of them are made of ``shardproof.report/1``, wherever that comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from service.dashboard import render_static
from service.exports.junit import junit
from service.exports.tables import csv_table, parquet_table


class Format(StrEnum):
    JUNIT = "junit"
    CSV = "csv"
    PARQUET = "parquet"
    HTML = "html"


@dataclass(frozen=True)
class Export:
    """``write``: report in, bytes of the file out."""

    media_type: str
    suffix: str
    write: Callable[[Mapping[str, Any]], bytes]


EXPORTS = {
    Format.JUNIT: Export("application/xml", "xml", junit),
    Format.CSV: Export("text/csv; charset=utf-8", "csv", csv_table),
    Format.PARQUET: Export("application/vnd.apache.parquet", "parquet", parquet_table),
    Format.HTML: Export("text/html; charset=utf-8", "html", lambda report: render_static(report).encode()),
}

__all__ = ["EXPORTS", "Export", "Format"]
