"""A limit on how often somebody may ask: a bucket of tokens that fills up again. No clock: the time is handed in."""

from __future__ import annotations

from dataclasses import dataclass

SECONDS_OF_A_MINUTE = 60.0


@dataclass(frozen=True)
class Bucket:
    """``tokens`` were there at ``at`` (seconds of any clock that does not go back)."""

    tokens: float
    at: float


def take(bucket: Bucket | None, per_minute: int, now: float) -> tuple[Bucket, float]:
    """Take one token. A bucket holds what comes in a minute and begins full (``None``).

    Returns:
        The bucket, and how many seconds to wait for a token: 0 where one was taken.
    """
    rate = per_minute / SECONDS_OF_A_MINUTE
    before = bucket or Bucket(per_minute, now)
    tokens = min(float(per_minute), before.tokens + max(0.0, now - before.at) * rate)
    if tokens >= 1.0:
        return Bucket(tokens - 1.0, now), 0.0
    return Bucket(tokens, now), (1.0 - tokens) / rate


def full(bucket: Bucket, per_minute: int, now: float) -> bool:
    """Whether the bucket has filled up again, so that it need not be remembered."""
    return bucket.tokens + (now - bucket.at) * per_minute / SECONDS_OF_A_MINUTE >= per_minute
