from __future__ import annotations

import pytest

from service.domain.retention import Bound, Kept, beyond

KEPT = [Kept("b", 20), Kept("c", 30), Kept("a", 10), Kept("d", 40)]


@pytest.mark.parametrize(
    ("sweeps", "size", "gone"),
    [
        (9, 100, []),
        (4, 100, []),
        (3, 100, ["a"]),
        (1, 100, ["a", "b", "c"]),
        (0, 100, ["a", "b", "c", "d"]),
        (9, 99, ["a"]),
        (9, 90, ["a"]),
        (9, 89, ["a", "b"]),
        (2, 69, ["a", "b", "c"]),
        # The newest alone is more than that.
        (9, 39, ["a", "b", "c"]),
        (9, 0, ["a", "b", "c"]),
    ],
)
def test_the_oldest_go_until_both_bounds_hold(sweeps: int, size: int, gone: list[str]) -> None:
    assert beyond(Bound(sweeps, size), KEPT) == gone


def test_an_older_one_that_would_fit_does_not_stay_behind_a_newer_one_that_goes() -> None:
    assert beyond(Bound(9, 10), [Kept("a", 1), Kept("b", 50), Kept("c", 5)]) == ["a", "b"]
