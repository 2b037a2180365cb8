from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.domain.cron import Cron
from service.domain.schedule import LATE, Cause, Missed, turn

NIGHTLY = Cron("30 2 * * *", ZoneInfo("UTC"))
SERVED = datetime(2026, 11, 1, 2, 30, tzinfo=UTC)
DUE = datetime(2026, 11, 2, 2, 30, tzinfo=UTC)


@pytest.mark.parametrize("missed", Missed)
def test_before_its_time_it_waits(missed: Missed) -> None:
    found = turn(NIGHTLY, SERVED, DUE - timedelta(seconds=1), missed)
    assert (found.time, found.cause, found.next) == (None, None, DUE)


@pytest.mark.parametrize("missed", Missed)
@pytest.mark.parametrize("late", [timedelta(0), LATE])
def test_at_its_time_and_a_little_later_it_fires(missed: Missed, late: timedelta) -> None:
    found = turn(NIGHTLY, SERVED, DUE + late, missed)
    assert (found.time, found.cause, found.next) == (DUE, Cause.DUE, DUE + timedelta(days=1))


@pytest.mark.parametrize(("missed", "cause"), [(Missed.SKIP, None), (Missed.ONCE, Cause.MISSED)])
def test_a_week_that_was_missed_is_skipped_or_fires_once(missed: Missed, cause: Cause | None) -> None:
    found = turn(NIGHTLY, SERVED, DUE + timedelta(days=6, hours=1), missed)
    assert (found.time, found.cause) == (DUE + timedelta(days=6), cause)
    assert found.next == DUE + timedelta(days=7)


def test_a_time_that_has_come_covers_those_that_were_missed() -> None:
    found = turn(NIGHTLY, SERVED, DUE + timedelta(days=6), Missed.ONCE)
    assert (found.time, found.cause) == (DUE + timedelta(days=6), Cause.DUE)


def test_a_clock_that_goes_back_serves_nothing_again() -> None:
    found = turn(NIGHTLY, DUE, DUE - timedelta(hours=1), Missed.ONCE)
    assert (found.time, found.next) == (None, DUE + timedelta(days=1))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 3 * 24 * 60), min_size=1, max_size=20),
    st.sampled_from(Missed),
    st.sampled_from(["30 2 * * *", "*/20 * * * *", "0 1-4 * * *"]),
)
def test_however_often_it_is_looked_at_no_time_is_served_twice(
    steps: list[int], missed: Missed, expression: str
) -> None:
    cron = Cron(expression, ZoneInfo("Europe/Berlin"))
    now = served = datetime(2026, 10, 23, tzinfo=UTC)
    fired: list[datetime] = []
    for minutes in steps:
        now += timedelta(minutes=minutes)
        found = turn(cron, served, now, missed)
        if found.time is not None:
            assert served < found.time <= now
            served = found.time
            fired += [found.time] if found.cause else []
        assert found.next is not None
        assert found.next > now
        if missed is Missed.ONCE:
            assert cron.latest(datetime(2026, 10, 23, tzinfo=UTC), now) == (fired[-1] if fired else None)
    assert len(set(fired)) == len(fired)
