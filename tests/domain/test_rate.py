from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from service.domain.rate import Bucket, full, take

PER_MINUTE = 6


def test_a_minute_s_worth_may_come_at_once_and_then_one_by_one() -> None:
    bucket: Bucket | None = None
    for _ in range(PER_MINUTE):
        bucket, wait = take(bucket, PER_MINUTE, 100.0)
        assert wait == 0
    bucket, wait = take(bucket, PER_MINUTE, 100.0)
    assert wait == 10.0
    bucket, wait = take(bucket, PER_MINUTE, 109.0)
    assert 0 < wait <= 1.0 + 1e-9
    bucket, wait = take(bucket, PER_MINUTE, 110.0)
    assert wait == 0


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=200), st.integers(1, 100))
def test_no_more_than_the_limit_and_one_bucket_pass(times: list[float], per_minute: int) -> None:
    bucket: Bucket | None = None
    passed = 0
    for now in sorted(times):
        bucket, wait = take(bucket, per_minute, now)
        passed += wait == 0
    span = max(times) - min(times)
    assert passed <= per_minute + span * per_minute / 60 + 1e-6
    assert passed >= min(len(times), per_minute)


def test_a_clock_that_stands_still_or_goes_back_gives_nothing() -> None:
    bucket = Bucket(0.0, 100.0)
    assert take(bucket, PER_MINUTE, 90.0)[1] > 0


def test_a_bucket_is_full_again_after_a_minute() -> None:
    assert not full(Bucket(0.0, 0.0), PER_MINUTE, 59.0)
    assert full(Bucket(0.0, 0.0), PER_MINUTE, 60.0)
