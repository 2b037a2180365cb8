"""Times of schedules over changes of the clock, against a walk through every minute."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from service.domain.cron import Cron, InvalidTime, read

BERLIN = ZoneInfo("Europe/Berlin")
MINUTE = timedelta(minutes=1)

CHANGES = [
    ("Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 25, 1, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 3, 8, 7, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, 6, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),  # by half an hour
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
    ("America/Havana", datetime(2026, 3, 8, 5, tzinfo=UTC)),  # at midnight
    ("America/Havana", datetime(2026, 11, 1, 5, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)),  # a whole day is skipped
    ("Asia/Kathmandu", datetime(2026, 6, 1, tzinfo=UTC)),  # no change, and 45 minutes off
    ("UTC", datetime(2026, 6, 1, tzinfo=UTC)),
]


def walls(zone: ZoneInfo, moment: datetime) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def wall_clock_walk(
    minutes: set[int], hours: set[int], zone: ZoneInfo, begin: datetime, end: datetime
) -> list[datetime]:
    """Go through real time minute by minute, with a list of what the wall clock has shown so far.

    A time on the wall counts the first time. What the clock jumps over counts at the moment after the jump.
    """
    due = []
    shown = walls(zone, begin - timedelta(days=2))
    moment = begin - timedelta(days=2)
    while moment < end:
        moment += MINUTE
        now = walls(zone, moment)
        new = []
        while shown < now:
            shown += MINUTE
            new.append(shown)
        if begin < moment <= end and any(wall.minute in minutes and wall.hour in hours for wall in new):
            due.append(moment)
    return due


def elapsed_walk(minutes: set[int], zone: ZoneInfo, begin: datetime, end: datetime) -> list[datetime]:
    """Every real minute whose wall clock matches."""
    count = int((end - begin) / MINUTE)
    return [m for m in (begin + i * MINUTE for i in range(1, count + 1)) if walls(zone, m).minute in minutes]


def times(cron: Cron, begin: datetime, end: datetime) -> Iterator[datetime]:
    for due in cron.after(begin):
        if due > end:
            return
        yield due


sets_of_minutes = st.sets(st.sampled_from([0, 1, 15, 29, 30, 31, 45, 59]), min_size=1, max_size=4)
sets_of_hours = st.sets(st.integers(0, 23), min_size=1, max_size=6)


def field(values: set[int]) -> str:
    return ",".join(map(str, sorted(values)))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(CHANGES), sets_of_minutes, sets_of_hours, st.integers(-26 * 60, 26 * 60))
def test_named_hours_go_by_the_clock_on_the_wall(
    change: tuple[str, datetime], minutes: set[int], hours: set[int], offset: int
) -> None:
    zone, begin = ZoneInfo(change[0]), change[1] + offset * MINUTE
    end = begin + timedelta(hours=30)
    cron = Cron(f"{field(minutes)} {field(hours)} * * *", zone)
    assert list(times(cron, begin, end)) == wall_clock_walk(minutes, hours, zone, begin, end)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(CHANGES), sets_of_minutes, st.sampled_from(["*", "0-23", "*/1"]), st.integers(-1600, 1600))
@example(("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)), {30}, "*", -1)
def test_every_hour_goes_by_elapsed_time(
    change: tuple[str, datetime], minutes: set[int], hours: str, offset: int
) -> None:
    zone, begin = ZoneInfo(change[0]), change[1] + offset * MINUTE
    end = begin + timedelta(hours=8)
    cron = Cron(f"{field(minutes)} {hours} * * *", zone)
    assert list(times(cron, begin, end)) == elapsed_walk(minutes, zone, begin, end)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(CHANGES),
    st.sampled_from(["30 2 * * *", "*/7 1-3 * * *", "0 0 * * *", "15 * * * *", "0 1,2,3 * * sun", "59 23 L * *"]),
    st.integers(-40_000, 40_000),
    st.integers(1, 80_000),
)
def test_the_latest_time_is_the_last_of_those_between(
    change: tuple[str, datetime], expression: str, offset: int, length: int
) -> None:
    cron = Cron(expression, ZoneInfo(change[0]))
    begin = change[1] + offset * MINUTE
    until = begin + length * MINUTE
    walked = list(times(cron, begin, until))
    assert cron.latest(begin, until) == (walked[-1] if walked else None)
    assert walked == sorted(set(walked))


def test_half_past_two_on_the_days_of_change() -> None:
    cron = Cron("30 2 * * *", BERLIN)
    spring = list(islice(cron.after(datetime(2026, 3, 28, 12, tzinfo=UTC)), 2))
    assert [str(due.astimezone(BERLIN)) for due in spring] == ["2026-03-29 03:00:00+02:00", "2026-03-30 02:30:00+02:00"]
    autumn = list(islice(cron.after(datetime(2026, 10, 24, 12, tzinfo=UTC)), 2))
    assert [str(due.astimezone(BERLIN)) for due in autumn] == ["2026-10-25 02:30:00+02:00", "2026-10-26 02:30:00+01:00"]


def test_asked_between_the_two_passes_of_a_doubled_hour_the_second_is_not_due() -> None:
    """What cronsim alone would say: it starts from the wall clock, which shows 02:10 again."""
    between = datetime(2026, 10, 25, 1, 10, tzinfo=UTC)
    assert between.astimezone(BERLIN).fold == 1
    due = next(Cron("30 2 * * *", BERLIN).after(between))
    assert due == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)


def test_a_year_of_missed_minutes_is_not_walked_through() -> None:
    cron = Cron("* * * * *", BERLIN)
    begin = datetime(2025, 1, 1, tzinfo=UTC)
    asked = 0

    class Counting(Cron):
        def after(self, moment: datetime) -> Iterator[datetime]:
            nonlocal asked
            for due in super().after(moment):
                asked += 1
                yield due

    until = datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC)
    assert Counting(cron.expression, BERLIN).latest(begin, until) == datetime(2026, 1, 1, tzinfo=UTC)
    assert asked < 100


@pytest.mark.parametrize(
    ("expression", "zone", "said"),
    [
        ("30 2 * *", "UTC", "4 fields"),
        ("0 30 2 * * *", "UTC", "6 fields"),
        ("", "UTC", "0 fields"),
        ("60 2 * * *", "UTC", "bad minute"),
        ("0 24 * * *", "UTC", "bad hour"),
        ("0 2 * * fun", "UTC", "bad day-of-week"),
        ("0 0 31 2 *", "UTC", "bad day-of-month"),
        ("*/0 2 * * *", "UTC", "bad minute"),
        ("0 2 * * mon#6", "UTC", "bad day-of-week"),
        ("1," * 200 + "1 2 * * *", "UTC", "200 characters"),
        ("30 2 * * *", "Europe/Atlantis", "no time zone"),
        ("30 2 * * *", "../../etc/passwd", "no time zone"),
        ("30 2 * * *", "/etc/localtime", "no time zone"),
        ("30 2 * * *", "Europe", "no time zone"),
        ("30 2 * * *", "", "no time zone"),
        ("30 2 * * *", "Europe/\0Berlin", "no time zone"),
    ],
)
def test_what_cannot_be_read_is_said(expression: str, zone: str, said: str) -> None:
    with pytest.raises(InvalidTime, match=said) as caught:
        read(expression, zone, datetime(2026, 1, 1, tzinfo=UTC))
    assert caught.value.field == ("timezone" if "zone" in said else "cron")


@settings(max_examples=300, deadline=None)
@given(st.text("0123456789*,-/#LWlw monsufeb²", max_size=30), st.text(max_size=20))
def test_nothing_that_is_written_does_worse_than_be_refused(expression: str, zone: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    for written, name in ((expression, "Europe/Berlin"), ("0 0 * * *", zone)):
        try:
            assert next(read(written, name, now).after(now)) > now
        except InvalidTime:
            continue


def test_a_leap_day_comes_in_time() -> None:
    found = list(
        islice(read("0 0 29 2 *", "UTC", datetime(2026, 1, 1, tzinfo=UTC)).after(datetime(2026, 1, 1, tzinfo=UTC)), 2)
    )
    assert [due.year for due in found] == [2028, 2032]
