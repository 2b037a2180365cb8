"""A page of a sweep that is watched while real engines run."""

from __future__ import annotations

import re
from pathlib import Path

from browser.visit import Visit
from playwright.sync_api import expect

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


def open_sweep(visit: Visit, sweep_id: str, picture: Path) -> None:
    """Open the page of a sweep that runs, and keep a picture of it with a rank at work."""
    page = visit.go(f"/sweeps/{sweep_id}")
    page.evaluate(NOTE_PHASES)
    expect(page.locator("#live")).to_contain_text(re.compile(r"rank [01]: "), timeout=300_000)
    visit.shoot(picture)


def seen(visit: Visit) -> set[str]:
    return set(visit.page.evaluate("[...window.seen]"))
