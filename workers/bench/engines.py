"""Engines that a benchmark starts, one at a time, in this interpreter's environment."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from workers.arms import Arm
from workers.protocol import ArmReport, ArmSpec, Failure, Outcome
from workers.start_times import Result


class BenchFailed(RuntimeError):
    """An engine of the benchmark did not come through, or did something else than it was to do."""


@dataclass(frozen=True)
class Started:
    """An engine that came through: the arm with its events, how it ended, and what it wrote."""

    arm: Arm
    report: ArmReport
    result: Result


def start(spec: ArmSpec, ranks: int) -> Started:
    """Start an engine and wait for its end.

    Raises:
        BenchFailed: when it did not come through.
    """
    with Arm(spec, ranks, sys.executable) as arm:
        for _ in arm.follow():
            pass
    report, result = arm.report(), arm.result()
    if report.outcome is not Outcome.OK or result is None:
        raise BenchFailed(f"the {spec.key} engine ended as {report.outcome}: {_why(report.failure)}")
    return Started(arm, report, result)


def _why(failure: Failure | None) -> str:
    return "no reason is known" if failure is None else "\n".join([failure.message, *failure.log_tail])
