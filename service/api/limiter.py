"""How often each key, and each address without one, may ask. Counted in this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from service.domain import rate
from service.domain.rate import Bucket

MOST_REMEMBERED = 10_000
"""Above so many buckets those that are full again are forgotten, and if there is none the oldest."""


class Limiter:
    """``per_minute`` 0 is without a limit."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._buckets: dict[str, Bucket] = {}
        self._lock = threading.Lock()

    def wait_s(self, who: str) -> float:
        """Seconds until ``who`` may ask; 0 where he may, which is counted."""
        if self._per_minute == 0:
            return 0.0
        now = self._clock()
        with self._lock:
            bucket, wait = rate.take(self._buckets.pop(who, None), self._per_minute, now)
            self._buckets[who] = bucket
            if len(self._buckets) > MOST_REMEMBERED:
                self._forget(now)
        return wait

    def _forget(self, now: float) -> None:
        kept = {who: bucket for who, bucket in self._buckets.items() if not rate.full(bucket, self._per_minute, now)}
        newest = list(kept.items())[-MOST_REMEMBERED:]
        self._buckets = dict(newest)
