"""Ids of sweeps."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime


def new_sweep_id() -> str:
    """Sorts by time."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
