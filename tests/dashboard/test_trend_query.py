from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import parse_qs

import pytest

from service.dashboard.trend_query import Asked, asked, ranges

KNOWN = ["cold.dynamo", "cold_s", "peak_rss_bytes", "warm_s"]


def ask(figures: tuple[str, ...] = (), since: str = "", until: str = "", scale: str = "linear") -> Asked:
    return asked(figures, KNOWN, since, until, scale)


def test_who_asks_for_nothing_is_shown_what_matters_most() -> None:
    assert ask().figures == ("cold_s", "warm_s")
    assert asked((), ["cold.dynamo"], "", "", "linear").figures == ("cold.dynamo",)
    assert asked((), [], "", "", "linear").figures == ()


def test_days_are_whole_days_and_moments_are_moments() -> None:
    found = ask(since="2026-11-01", until="2026-11-30")
    assert found.since == datetime(2026, 11, 1, tzinfo=UTC)
    assert found.until == datetime(2026, 11, 30, 23, 59, 59, 999999, tzinfo=UTC)
    assert ask(since="2026-11-01T04:00+02:00").since == datetime(2026, 11, 1, 2, tzinfo=UTC)
    assert ask(since="2026-11-01T02:00").since == datetime(2026, 11, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize("since", ["", "2026-11-01", "2026-11-01T02:03:04Z", "2026-11-01T02:03:04.000005Z"])
def test_an_address_says_the_same_again(since: str) -> None:
    first = ask(("warm_s", "cold.dynamo"), since, "2026-11-30", "log")
    fields = parse_qs(first.query()[1:])
    again = ask(tuple(fields["figure"]), *(fields.get(name, [""])[0] for name in ("since", "until", "scale")))
    assert again == first


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_the_same_over_a_stretch_keeps_figures_and_scale(scale: str) -> None:
    over = ask(("warm_s", "cold.dynamo"), since="2026-11-01", scale=scale).stretches()
    begin, end = datetime(2026, 11, 5, 2, 30, tzinfo=UTC), datetime(2026, 11, 6, 2, 30, 0, 5, tzinfo=UTC)
    for since, until in ((begin, end), (begin, None), (None, end), (None, None)):
        fields = parse_qs(over(since, until)[1:])
        assert fields.get("scale", ["linear"]) == [scale]
        again = ask(tuple(fields["figure"]), *(fields.get(name, [""])[0] for name in ("since", "until")), scale)
        assert (again.figures, again.since, again.until) == (("warm_s", "cold.dynamo"), since, until)
    assert asked((), [], "", "", "linear").stretches()(begin, None) == "?since=2026-11-05T02%3A30%3A00Z"


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("figure", {"figures": ("nope",)}),
        ("since", {"since": "yesterday"}),
        ("since", {"since": "2026-02-30"}),
        ("until", {"until": "9999-99-99"}),
        ("until", {"since": "2026-11-02", "until": "2026-11-01"}),
        ("scale", {"scale": "cubic"}),
    ],
)
def test_what_cannot_be_used_is_said_and_left_out(field: str, values: dict[str, str]) -> None:
    found = ask(**values)  # type: ignore[arg-type]
    assert len(found.of(field)) == 1
    assert found.figures == ("cold_s", "warm_s")
    assert found.scale == "linear"
    assert not ask().problems


def test_the_api_is_asked_for_the_same_stretch() -> None:
    fields = parse_qs(ask(("cold_s",), "2026-11-01", "2026-11-30").rest_query()[1:])
    assert fields == {
        "figure": ["cold_s"],
        "since": ["2026-11-01T00:00:00+00:00"],
        "until": ["2026-12-01T00:00:00+00:00"],
    }


def test_stretches_end_with_the_newest_night() -> None:
    assert ranges(datetime(2026, 11, 30, 2, tzinfo=UTC))[0] == ("30 days", datetime(2026, 10, 31, tzinfo=UTC))
