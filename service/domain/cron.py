"""When a schedule is due: a cron expression, read by the clock of a time zone.

Fields and calendar are those of Debian's cron (``cronsim``). What a change of the clock does is decided here:

- An expression that names its hours goes by the clock on the wall. A time that a change skips is due at the first
  moment after it, and a time that comes twice is due the first time only. Several times that were skipped are due once.
- An expression that takes every hour goes by elapsed time: no hour is lost, and none is left out when it comes twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

LONGEST_EXPRESSION = 200
FIELDS = 5
EVERY_HOUR = set(range(24))

_ANY_DAY = datetime(2000, 1, 1)
_MINUTE = timedelta(minutes=1)
_DAY = timedelta(days=1)
_LOOK_BACK = tuple(timedelta(hours=hours) for hours in (1, 24, 35 * 24, 370 * 24, 9 * 370 * 24))


class InvalidTime(ValueError):
    """``field`` (``cron`` or ``timezone``) cannot be used; the text says why and what to write."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True)
class Cron:
    """``expression``: minute, hour, day of month, month, day of week. Made by :func:`read`, which checks it."""

    expression: str
    zone: ZoneInfo

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Every time later than ``moment`` (with a zone) at which this is due, in UTC, each once and in order.

        The iterator ends where no time comes within 50 years.
        """
        last = moment.astimezone(UTC)
        for due in self._elapsed(last) if self._takes_every_hour else self._by_the_clock(last):
            if due > last:
                yield due
                last = due

    def latest(self, after: datetime, until: datetime) -> datetime | None:
        """The last time in (``after``, ``until``] at which this was due; ``None`` if there was none.

        However long that is: only as much of it is walked through as has a time in it.
        """
        for span in _LOOK_BACK:
            begin = max(after, until - span)
            found = self._last_in(begin, until)
            if found is not None or begin == after:
                return found
        return self._last_in(after, until)

    def _last_in(self, begin: datetime, end: datetime) -> datetime | None:
        found = None
        for due in self.after(begin):
            if due > end:
                break
            found = due
        return found

    @cached_property
    def _takes_every_hour(self) -> bool:
        return CronSim(self.expression, _ANY_DAY).hours == EVERY_HOUR

    def _elapsed(self, moment: datetime) -> Iterator[datetime]:
        """The wall clock is followed by one offset at a time, so that what it shows twice is due twice.

        ``cronsim`` can count in real time itself, but loses what a change by half an hour shows again.
        """
        offset, known, begin = self._offset(moment), moment, moment
        while True:
            for wall in CronSim(self.expression, (begin + offset).replace(tzinfo=None)):
                due = wall.replace(tzinfo=UTC) - offset
                if due - known > _DAY:
                    # Changes in between are none of ours, unless right before it.
                    begin = known = due - _DAY
                    offset = self._offset(known)
                    break
                if self._offset(due) != offset:
                    known = self._change(known, due, offset)
                    begin, offset = known - _MINUTE, self._offset(known)
                    break
                yield due
                known = due
            else:
                return

    def _offset(self, moment: datetime) -> timedelta:
        return moment.astimezone(self.zone).utcoffset() or timedelta()

    def _change(self, before: datetime, after: datetime, offset: timedelta) -> datetime:
        """The first whole minute up to ``after`` at which the clock has not the ``offset`` that it has ``before``."""
        before = before.replace(second=0, microsecond=0)
        while after - before > _MINUTE:
            middle = before + (after - before) // _MINUTE // 2 * _MINUTE
            before, after = (middle, after) if self._offset(middle) == offset else (before, middle)
        return after

    def _by_the_clock(self, moment: datetime) -> Iterator[datetime]:
        for wall in CronSim(self.expression, moment.astimezone(self.zone).replace(tzinfo=None, fold=0)):
            yield self._moment(wall)

    def _moment(self, wall: datetime) -> datetime:
        """When the clock shows ``wall`` for the first time, or would have, had it not been moved past it."""
        while self._is_skipped(wall):
            wall += _MINUTE
        return wall.replace(tzinfo=self.zone).astimezone(UTC)

    def _is_skipped(self, wall: datetime) -> bool:
        there_and_back = wall.replace(tzinfo=self.zone).astimezone(UTC).astimezone(self.zone)
        return there_and_back.replace(tzinfo=None, fold=0) != wall


def read(expression: str, timezone: str, now: datetime) -> Cron:
    """The times of ``expression`` (five fields) in ``timezone`` (a name of the IANA database).

    Raises:
        InvalidTime: if either cannot be read, or no time comes after ``now``.
    """
    cron = Cron(_fields(expression), _zone(timezone))
    if next(cron.after(now), None) is None:
        raise InvalidTime("cron", f"{expression!r} never comes; write a day that a month has")
    return cron


def _fields(expression: str) -> str:
    if len(expression) > LONGEST_EXPRESSION:
        raise InvalidTime("cron", f"a cron expression has at most {LONGEST_EXPRESSION} characters; use fewer values")
    fields = expression.split()
    if len(fields) != FIELDS:
        raise InvalidTime(
            "cron",
            f"{expression!r} has {len(fields)} fields and not {FIELDS}; "
            "write minute, hour, day of month, month and day of week, as in '30 2 * * mon-fri'",
        )
    try:
        CronSim(" ".join(fields), _ANY_DAY)
    except CronSimError as error:
        raise InvalidTime("cron", f"{expression!r} is no cron expression: {str(error).lower()}") from error
    return " ".join(fields)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidTime(
            "timezone", f"{name[:60]!r} is no time zone; write a name of the IANA database, as Europe/Berlin or UTC"
        ) from error
