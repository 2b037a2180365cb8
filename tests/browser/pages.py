"""Every page there is, by a name for its picture. A new page goes in here, and is tested as all others are."""

from __future__ import annotations

from .scene import EMPTY, HOSTILE, NIGHTLY, QUEUED, RUNNING

PAGES = {
    "overview": "/",
    "sweep": f"/sweeps/{NIGHTLY}",
    "sweep-running": f"/sweeps/{RUNNING}",
    "sweep-hostile": f"/sweeps/{HOSTILE}",
    "sweep-not-begun": f"/sweeps/{QUEUED}",
    "sweep-without-cells": f"/sweeps/{EMPTY}",
    "login": "/login",
}
