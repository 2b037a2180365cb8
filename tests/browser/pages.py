"""Every page there is, by a name for its picture. A new page goes in here, and is tested as all others are."""

from __future__ import annotations

from urllib.parse import quote

from .scene import EMPTY, HOSTILE, HOSTILE_ID, NIGHT, NIGHTLY, QUEUED, RUNNING

CELLS = {f"cell-{name}": f"/sweeps/{NIGHTLY}/cells/c{place}" for place, name in enumerate(NIGHT)}

PAGES = {
    "overview": "/",
    "sweeps": "/sweeps/",
    "sweep": f"/sweeps/{NIGHTLY}",
    "sweep-filtered": f"/sweeps/{NIGHTLY}?x=-&verdict=crashed",
    "sweep-running": f"/sweeps/{RUNNING}",
    "sweep-hostile": f"/sweeps/{HOSTILE}",
    "sweep-not-begun": f"/sweeps/{QUEUED}",
    "sweep-without-cells": f"/sweeps/{EMPTY}",
    **CELLS,
    "cell-running": f"/sweeps/{RUNNING}/cells/c0",
    "cell-hostile": f"/sweeps/{HOSTILE}/cells/{quote(HOSTILE_ID, safe='')}",
    "login": "/login",
}

LIVE = {"overview", "sweep-running", "sweep-hostile", "sweep-not-begun", "cell-running"}
"""Pages that ask again and again while they are open."""
