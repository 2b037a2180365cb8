"""Whether the wall clock was set while something ran. Nothing is measured by it, but people and other programs are."""

from __future__ import annotations

import time

NOTICED_S = 1.0
"""Less is what a time server corrects in passing."""


class WallClock:
    """Holds the wall clock against the monotonic one, from when it is made."""

    def __init__(self) -> None:
        self._apart = _apart()

    def set_by(self) -> float | None:
        """By how many seconds the wall clock was set since, forward or (negative) back; ``None`` when it was not."""
        moved = _apart() - self._apart
        return moved if abs(moved) >= NOTICED_S else None


def _apart() -> float:
    return time.time() - time.monotonic()
