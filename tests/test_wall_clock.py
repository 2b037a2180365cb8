"""A wall clock that is set while an arm runs is noticed, and changes nothing that is measured."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from workers.arms import Arm
from workers.protocol import ArmSpec, BatchPlan, Role
from workers.wall_clock import WallClock


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the wall clock, as this process sees it, by so many seconds."""
    wall = time.time

    def set_by(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: wall() + seconds)

    return set_by


@pytest.mark.parametrize("seconds", [3600.0, -3600.0, 1.5])
def test_a_clock_that_is_set_is_noticed(set_clock: Callable[[float], None], seconds: float) -> None:
    clock = WallClock()
    assert clock.set_by() is None
    set_clock(seconds)
    assert clock.set_by() == pytest.approx(seconds, abs=0.4)


def test_what_a_time_server_corrects_is_not(set_clock: Callable[[float], None]) -> None:
    clock = WallClock()
    set_clock(0.25)
    assert clock.set_by() is None


@pytest.mark.parametrize("seconds", [3600.0, -3600.0, 0.0])
def test_an_arm_whose_clock_is_set_lasts_as_long_as_it_lasts(
    tmp_path: Path, set_clock: Callable[[float], None], seconds: float
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!{sys.executable}\n")
    python.chmod(0o755)
    spec = ArmSpec(
        role=Role.COLD, key="k", engine={}, patches={}, env={}, batch=BatchPlan(), taps=False,
        folder=str(tmp_path / "cold"), cache_root=str(tmp_path / "cache"), models_dir="", timeout_s=600.0,
    )  # fmt: skip
    begin = time.monotonic()
    with Arm(spec, 1, str(python)) as arm:
        set_clock(seconds)
        list(arm.follow())
    report = arm.report()
    assert 0 < report.wall_s <= time.monotonic() - begin
    assert report.clock_set_by_s == (pytest.approx(seconds, abs=0.4) if seconds else None)
