"""What the address of a series' page asks for: figures, a stretch of time, a scale. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from functools import cache
from urllib.parse import quote_plus, urlencode

LINEAR, LOG = "linear", "log"
DEFAULT_FIGURES = ("cold_s", "warm_s")

RANGES = (("30 days", 30), ("90 days", 90), ("a year", 365))
"""Stretches that are one click away, up to the newest outcome."""


@dataclass(frozen=True)
class Asked:
    """``problems``: what of the address cannot be used, by field; it is left out of account."""

    figures: tuple[str, ...]
    since: datetime | None
    until: datetime | None
    scale: str
    problems: tuple[tuple[str, str], ...] = ()

    @property
    def logarithmic(self) -> bool:
        return self.scale == LOG

    def of(self, name: str) -> list[str]:
        """What is wrong with a field, as forms ask for it."""
        return [said for field, said in self.problems if field == name]

    def query(self) -> str:
        """The same as the query of an address, beginning with ``?``."""
        return self.stretches()(self.since, self.until)

    def stretches(self) -> Callable[[datetime | None, datetime | None], str]:
        """The query of the same over any stretch; what all of them share is written once, as each dot is a link."""
        figures = urlencode([("figure", figure) for figure in self.figures])
        scale = urlencode([("scale", self.scale)]) if self.scale != LINEAR else ""

        # Figures were measured in the same nights, so they have their stretches in common.
        @cache
        def query(since: datetime | None, until: datetime | None) -> str:
            ends = [f"{name}={quote_plus(written(at))}" for name, at in (("since", since), ("until", until)) if at]
            return "?" + "&".join(filter(None, (figures, *ends, scale)))

        return query

    def rest_query(self) -> str:
        """The same points, as the API is asked for them."""
        fields = [("figure", figure) for figure in self.figures]
        if self.since is not None:
            fields.append(("since", self.since.isoformat()))
        if self.until is not None:
            # There the end is not part of it.
            fields.append(("until", (self.until + timedelta(microseconds=1)).isoformat()))
        return "?" + urlencode(fields)


def asked(figures: Sequence[str], known: Sequence[str], since: str, until: str, scale: str) -> Asked:
    """``figures``: as they were asked for; without any those that matter most. ``known``: those that the series has."""
    problems = [("figure", f"this series has no figure {name!r}") for name in figures if name not in known]
    wanted = [name for name in dict.fromkeys(figures) if name in known]
    usual = [name for name in DEFAULT_FIGURES if name in known] or list(known[:1])
    begin, end = _read(since, "since", time.min, problems), _read(until, "until", time.max, problems)
    if scale not in (LINEAR, LOG):
        problems.append(("scale", f"{scale!r} is no scale; write {LINEAR} or {LOG}"))
        scale = LINEAR
    if begin is not None and end is not None and begin > end:
        problems.append(("until", "this is before the beginning; nothing lies in between"))
    return Asked(tuple(wanted or usual), begin, end, scale, tuple(problems))


def written(moment: datetime) -> str:
    """As an address holds it: a day where that says all, else the moment, in UTC."""
    at = moment.astimezone(UTC)
    if at.time() in (time.min, time.max):
        return f"{at:%Y-%m-%d}"
    return at.isoformat().replace("+00:00", "Z")


def ranges(newest: datetime) -> list[tuple[str, datetime]]:
    """Names of stretches, and the day that each begins with."""
    day = datetime.combine(newest.astimezone(UTC).date(), time.min, UTC)
    return [(name, day - timedelta(days=days)) for name, days in RANGES]


def _read(text: str, field: str, within_day: time, problems: list[tuple[str, str]]) -> datetime | None:
    """``text`` is a day, of which ``within_day`` is meant, or a moment, in UTC where it names no zone."""
    if not text.strip():
        return None
    try:
        if len(text.strip()) == len("2026-11-30"):
            return datetime.combine(datetime.strptime(text.strip(), "%Y-%m-%d").date(), within_day, UTC)
        found = datetime.fromisoformat(text.strip())
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        problems.append((field, f"{text[:40]!r} is no day; write it as 2026-11-30"))
        return None
