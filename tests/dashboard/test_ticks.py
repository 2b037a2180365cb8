from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from service.dashboard import ticks

BEGIN = datetime(2026, 11, 1, 2, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (19.7, 23.1, [20, 21, 22, 23]),
        (0.01, 0.05, [0.01, 0.02, 0.03, 0.04, 0.05]),
        (7, 7, [7]),
    ],
)
def test_values_are_round(low: float, high: float, expected: list[float]) -> None:
    assert ticks.of_values(low, high) == expected


def test_decades_have_ones_twos_and_fives() -> None:
    assert ticks.of_decades(0.9, 110) == [1, 2, 5, 10, 20, 50, 100]
    assert ticks.of_decades(0.001, 2000) == pytest.approx([0.001, 0.01, 0.1, 1, 10, 100, 1000])
    assert ticks.of_decades(21, 24) == ticks.of_values(21, 24)


@pytest.mark.parametrize("days", [0, 1, 3, 10, 45, 120, 400, 4000])
def test_times_are_few_in_order_and_inside(days: int) -> None:
    end = BEGIN + timedelta(days=days)
    found = ticks.of_times(BEGIN, end)
    assert 1 <= len(found) <= 8
    assert found == sorted(found)
    assert all(BEGIN <= moment <= end for moment in found)
    if days > 2:
        assert {moment.time().isoformat() for moment in found} == {"00:00:00"}
