"""``shardproof bench pages`` on little: every page is answered, and seen by a browser."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from service.app import create_app
from service.bench import run_bench
from service.dispatch.controller import Controller
from service.domain.startup import NotMeasured
from service.page_bench import _answers
from service.page_chromium import shown
from service.page_load import Amount
from service.settings import Settings
from service.store import open_store

pytestmark = pytest.mark.slow


def test_every_page_is_measured_at_the_server_and_in_a_browser(tmp_path: Path) -> None:
    result = run_bench("pages", Settings(home=tmp_path), quick=True)
    assert result["name"] == "pages"
    rows = {row["page"]: row for row in result["rows"]}
    charts = {"chart", "chart, all figures"}
    assert {"overview", "sweep", "cell", "series"} | charts <= rows.keys()
    for name, row in rows.items():
        assert 0 < row["p50_ms"] <= row["p99_ms"] <= result["figure"]
        if name in charts:
            assert row["first_content_ms"] is None, "no browser shows it by itself"
            continue
        assert 0 < row["first_content_ms"] <= row["slowest_ms"]
        assert row["fetched_kb"] > row["size_kb"] / 20, "compressed or not, it was fetched"
    assert "16 cells" in result["notes"][0]


def test_what_is_no_answer_is_no_measurement(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, database_url=None)
    store = open_store(settings.store_url)
    app = create_app(settings, store, Controller(settings, store))
    with pytest.raises(NotMeasured, match="404"):
        asyncio.run(_answers(app, {"none": "/sweeps/nope"}, 1))
    assert shown(app, {"overview": "/"}, 1)["overview"].fetched > 1000
    store.close()


def test_a_sweep_of_so_many_cells_has_them_all() -> None:
    assert len(set(Amount(cells=400, points=100_000).sweep.cells)) == 400
    assert Amount(cells=400, points=100_000).nights == 20_000
