"""Where pages lie, from the root on. What stands before that, a prefix or steps up, is known where a link is made."""

from __future__ import annotations

from urllib.parse import quote


def sweep_page(sweep_id: str) -> str:
    return f"sweeps/{quote(sweep_id, safe='')}"


def cell_page(sweep_id: str, cell_id: str) -> str:
    return f"{sweep_page(sweep_id)}/cells/{quote(cell_id, safe='')}"


def schedule_page(name: str) -> str:
    return f"schedules/{quote(name, safe='')}"
