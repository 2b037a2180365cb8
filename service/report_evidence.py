"""What a report says of a cell by the evidence of its run: plain JSON, but for numbers that JSON does not have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from service.domain.time_notes import skew
from workers.protocol import (
    ArmReport,
    CompileTimes,
    Evidence,
    Failure,
    OutputComparison,
    Residual,
    Role,
    TimedStart,
    Traces,
)

Json = dict[str, Any]


def reported(evidence: Evidence | None, kept: bool) -> Json:
    """``kept``: the files that the arms left are still there."""
    if evidence is None:
        return {
            "arms": [],
            "exercised": {"sequence_parallelism": None},
            "compile": {"cold": None, "warm": None},
            "starts": [],
            "fallback": None,
            "residual": None,
            "outputs": None,
            "guards": [],
            "invariants": [],
            "accuracy": None,
        }
    return {
        "arms": [_arm(arm, kept) for arm in evidence.arms],
        "exercised": evidence.exercised.model_dump(mode="json"),
        "compile": {"cold": _times(evidence.compile.cold), "warm": _times(evidence.compile.warm)},
        "starts": [_start(start) for start in evidence.compile.starts],
        "fallback": None if evidence.fallback is None else evidence.fallback.model_dump(mode="json"),
        "residual": _residual(evidence.residual),
        "outputs": _outputs(evidence.outputs),
        "guards": [guard.model_dump(mode="json") for guard in evidence.guards],
        "invariants": [item.model_dump(mode="json") for item in evidence.invariants],
        "accuracy": None if evidence.accuracy is None else evidence.accuracy.model_dump(mode="json"),
    }


def _arm(arm: ArmReport, kept: bool) -> Json:
    shown = arm if kept or arm.failure is None else _without_files(arm, arm.failure)
    keys = {
        "role",
        "outcome",
        "wall_s",
        "failure",
        "peak_rss_bytes",
        "repeat",
        "clock_set_by_s",
        "forked",
        "not_forked",
        "machines",
    }
    plain = shown.model_dump(mode="json", include=keys)
    return {**plain, "traces": _traces(arm, arm.traces) if kept and arm.traces is not None else None}


def _without_files(arm: ArmReport, failure: Failure) -> ArmReport:
    return arm.model_copy(update={"failure": failure.model_copy(update={"stacks": None})})


def _traces(arm: ArmReport, traces: Traces) -> Json:
    """With the folder that the paths are in."""
    return {"folder": arm.folder, **traces.model_dump(mode="json")}


def _times(times: CompileTimes | None) -> Json | None:
    return None if times is None else {**times.model_dump(mode="json"), "skew": skew(times.ranks)}


def _start(start: TimedStart) -> Json:
    """One timed start with what proves it; the time line is that of the median start alone."""
    plain = start.model_dump(mode="json", include={"role", "repeat", "cache_keys", "cache_problem"})
    times = start.times.model_dump(mode="json", include={"total_s", "artifacts"})
    return {**plain, **times, "outputs": None if start.outputs is None else _comparison(start.outputs)}


def _residual(comparisons: Sequence[Residual]) -> Json | None:
    if not comparisons:
        return None
    shown = min(comparisons, key=_telling)
    keys = ("subject", "against", "sites", "ranks", "bitwise_equal", "worst_score", "first_divergence")
    return {
        **{key: value for key, value in shown.model_dump(mode="json").items() if key in keys},
        "comparisons": [comparison.model_dump(mode="json") for comparison in comparisons],
    }


def _telling(item: Residual) -> tuple[bool, bool, bool]:
    """The cell's own engine comes first, then what is wrong, then the replicated arm: there bit equality is owed."""
    return item.subject is not Role.PROBE, item.first_divergence is None, item.against is not Role.REPLICATED


def _outputs(comparisons: Sequence[OutputComparison]) -> Json | None:
    if not comparisons:
        return None
    # The replicated arm has the same ranks and kernels, so a difference from it says more than one from TP=1.
    shown = min(comparisons, key=_remoteness)
    return {**_comparison(shown), "comparisons": [_comparison(comparison) for comparison in comparisons]}


def _remoteness(comparison: OutputComparison) -> tuple[bool, bool]:
    return comparison.subject is not Role.PROBE, comparison.against is not Role.REPLICATED


def _comparison(comparison: OutputComparison) -> Json:
    plain = comparison.model_dump(mode="json")
    return {"class": plain.pop("klass"), **plain}
