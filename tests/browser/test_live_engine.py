"""A page is watched while the quickstart sweep runs on real engines."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
from e2e.served import serving
from playwright.sync_api import expect

from service.matrices import quickstart

from .conftest import Visiting

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1500)]

NOTE_PHASES = """() => {
  window.seen = new Set();
  window.untouched = true;
  const parts = e => (e.textContent.match(/(\\w+)( rank \\d+)?: ([\\w.-]+) \\(/) ?? []).slice(1);
  const note = () => document.querySelectorAll('#live .live').forEach(
    e => parts(e).forEach(part => window.seen.add(part)));
  new MutationObserver(note).observe(document.getElementById('live'), {childList: true, subtree: true});
}"""
"""Arms, ranks and phases as they were shown."""

SEEN = {"cold", "warm", "probe", " rank 0", " rank 1", "start", "profile"}
"""What takes more than a second, so that it cannot pass unseen."""


def test_a_real_sweep_is_watched_from_its_first_phase_to_its_verdicts(
    visiting: Visiting,
    tmp_path_factory: pytest.TempPathFactory,
    pictures: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Whoever waits for a page may share the machine with others.
    monkeypatch.setattr("e2e.served.PATIENCE_S", 300.0)
    with serving(tmp_path_factory.mktemp("watched")) as served:
        matrix = quickstart().read_bytes()
        headers = {"content-type": "application/yaml"}
        sweep_id = httpx.post(f"{served.url}/v1/sweeps", content=matrix, headers=headers, timeout=300).json()["id"]
        visit = visiting(served.url)
        page = visit.go(f"/sweeps/{sweep_id}")
        page.evaluate(NOTE_PHASES)
        shown = page.locator("#live")
        expect(shown).to_contain_text(re.compile(r"rank [01]: "), timeout=300_000)
        visit.shoot(pictures / "live-sweep.png")
        expect(page.locator("#live [data-ended]")).to_have_count(1, timeout=900_000)
        assert page.evaluate("window.untouched"), "it was not loaded anew"
        assert {"cold", "warm", "probe", " rank 0", " rank 1", "start", "profile"} <= set(
            page.evaluate("[...window.seen]")
        )
        expect(shown).to_contain_text("4 of 4 cells ended: 4 ok, 0 unexpected")
        visit.shoot(pictures / "live-sweep-ended.png")
        cells = {cell["name"]: cell for cell in served.report(sweep_id)["cells"]}
        timed = cells["sp-full-graph"]["compile"]["cold"]["total_s"]
        for name, shown_as in (("sp-full-graph", f"{timed:.1f}"), ("sp-guard-removed", "fail-residual")):
            row = page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True)).last
            expect(row).to_contain_text(shown_as)
        page.get_by_role("link", name="sp-guard-removed", exact=True).last.click()
        expect(page.get_by_text(cells["sp-guard-removed"]["reasons"][0].partition(": ")[2][:80]).first).to_be_visible()
        visit.shoot(pictures / "live-cell.png")
        visit.check_accessible()
        visit.leave()
