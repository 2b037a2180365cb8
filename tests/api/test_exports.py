from __future__ import annotations

import io

import pytest
from exports.sample import SWEEP, fill
from pyarrow import parquet

from api.client import Client
from api.test_problems import assert_problem
from service.exports import EXPORTS, Format
from service.store import Store

BEGINS = {Format.JUNIT: b"<?xml", Format.CSV: b"sweep,", Format.PARQUET: b"PAR1", Format.HTML: b"<!doctype html>"}


@pytest.mark.parametrize("form", Format)
def test_a_report_is_a_file_to_save(client: Client, store: Store, form: Format) -> None:
    fill(store)
    response = client.get(f"/v1/sweeps/{SWEEP}/export/{form}")
    assert response.status_code == 200
    assert response.content.startswith(BEGINS[form])
    assert response.headers["Content-Type"] == EXPORTS[form].media_type
    assert response.headers["Content-Disposition"] == f'attachment; filename="{SWEEP}.{EXPORTS[form].suffix}"'


def test_the_file_is_of_that_sweep(client: Client, store: Store) -> None:
    fill(store)
    table = parquet.read_table(io.BytesIO(client.get(f"/v1/sweeps/{SWEEP}/export/parquet").content))
    assert table.column("cell").to_pylist() == ["c0", "c1", "c2", "c3", "c4", "c5"]


def test_a_form_that_is_not_there(client: Client, store: Store) -> None:
    fill(store)
    problem = assert_problem(client.get(f"/v1/sweeps/{SWEEP}/export/docx"), 422, "invalid-request")
    assert "'junit', 'csv', 'parquet' or 'html'" in problem["errors"][0]["detail"]
