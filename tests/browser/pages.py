"""Every page there is, by a name for its picture. A new page goes in here, and is tested as all others are."""

from __future__ import annotations

from urllib.parse import quote

from .scene import BEFORE, EMPTY, HOSTILE, HOSTILE_ID, NIGHT, NIGHTLY, QUEUED, RUNNING, SERIES

CELLS = {f"cell-{name}": f"/sweeps/{NIGHTLY}/cells/c{place}" for place, name in enumerate(NIGHT)}
"""The pages of the nightly sweep's cells."""

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
    "trends": "/trends/",
    "trends-none": "/trends/?q=nope",
    "series": f"/trends/{SERIES}",
    "series-logarithmic": f"/trends/{SERIES}?figure=warm_s&figure=warm.exit&scale=log&since=2026-11-25",
    "compare": f"/compare?a={NIGHTLY}/c2&b={BEFORE}/c2",
    "compare-nothing": "/compare",
    "schedules": "/schedules/",
    "schedule": "/schedules/nightly",
    "environments": "/environments/",
    "nodes": "/nodes/",
    "keys": "/keys/",
    "login": "/login",
}
