from __future__ import annotations

import copy
import csv
import io
import math
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from service.exports import EXPORTS, Format
from service.exports.tables import COLUMNS, csv_table, parquet_table, rows

from .sample import FAULT

ROOT = Path(__file__).parent.parent.parent


def read_csv(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


def read_parquet(content: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = parquet.read_table(io.BytesIO(content)).to_pylist()
    return found


def test_a_row_has_every_column(report: dict[str, Any]) -> None:
    found = rows(report)
    assert len(found) == report["summary"]["cells"]
    assert all(list(row) == list(COLUMNS) for row in found)


def test_parquet_keeps_types_and_what_was_not_looked_at(report: dict[str, Any]) -> None:
    healthy, wrong, died, *_ = read_parquet(parquet_table(report))
    assert (healthy["ok"], healthy["cold_s"], healthy["sp_matched"], healthy["residual_site"]) == (True, 20.0, 5, None)
    assert (wrong["ok"], wrong["residual_site"], wrong["residual_rank"]) == (False, "layers.1.mlp", 1)
    assert FAULT in wrong["reasons"]
    assert (died["cold_s"], died["residual_worst_score"], died["outputs"]) == (None, None, None)
    assert read_parquet(parquet_table(report)) == rows(report)


def test_parquet_says_whose_it_is(report: dict[str, Any]) -> None:
    metadata = parquet.read_schema(io.BytesIO(parquet_table(report))).metadata
    assert metadata[b"schema"] == b"shardproof.report/1"
    assert metadata[b"sweep"].decode() == report["sweep"]["id"]


def test_csv_has_the_same_cells(report: dict[str, Any]) -> None:
    found = read_csv(csv_table(report))
    assert [row["cell"] for row in found] == [cell["id"] for cell in report["cells"]]
    healthy, wrong, died, running, *_ = found
    assert (healthy["ok"], healthy["cold_s"]) == ("true", "20.0")
    assert FAULT in wrong["reasons"].splitlines() or FAULT in wrong["reasons"]
    assert (died["cold_s"], running["ok"], running["verdict"]) == ("", "", "")


@pytest.mark.parametrize("name", ["=HYPERLINK(1)", "+1", "-1", "@SUM(A1)", "\tx", "\rx"])
def test_no_text_is_a_formula(report: dict[str, Any], name: str) -> None:
    told = copy.deepcopy(report)
    told["cells"][0]["name"] = name
    told["cells"][0]["compile"]["cold"]["total_s"] = -1.5
    row = read_csv(csv_table(told))[0]
    assert row["name"] == f"'{name}"
    assert row["cold_s"] == "-1.5", "a number is none"


def test_a_score_that_is_not_finite_is_a_number_again(report: dict[str, Any]) -> None:
    told = copy.deepcopy(report)
    told["cells"][0]["residual"]["worst_score"] = "Infinity"
    assert read_parquet(parquet_table(told))[0]["residual_worst_score"] == math.inf


@pytest.mark.parametrize("form", Format)
def test_a_sweep_of_no_cells_can_be_written(report: dict[str, Any], form: Format) -> None:
    empty = copy.deepcopy(report)
    empty["cells"] = []
    assert EXPORTS[form].write(empty)


def test_every_column_is_documented() -> None:
    text = (ROOT / "docs" / "rest.md").read_text()
    assert {column for column in COLUMNS if f"`{column}`" not in text} == set()
