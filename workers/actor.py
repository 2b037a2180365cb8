"""The run actor: one Ray actor per run. It starts the arms, follows them, compares what they recorded.

Each arm is a child process tree of its own, so a cold compile is really cold, a hang can be killed and a crash cannot
take the actor with it. An arm that dies ends the run's remaining arms of the same purpose, never the evidence.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workers.arms import Arm
from workers.evidence import Result, assemble, compile_times
from workers.protocol import ArmReport, ArmSpec, CompileTimes, Event, Outcome, Role, RunSpec

PHASE_EVENTS = ("phase-begin",)


class RunActor:
    """Executes one :class:`RunSpec`. ``python`` is the interpreter of the engine environment."""

    def __init__(self, spec: str, python: str) -> None:
        self._spec = RunSpec.model_validate_json(spec)
        self._python = python
        self._reports: list[ArmReport] = []
        self._results: dict[Role, Result] = {}
        self._times: dict[Role, CompileTimes] = {}

    def run(self) -> Iterator[dict[str, Any]]:
        """The events of the run as plain dictionaries, the evidence last. A Ray streaming generator."""
        for arm in self._spec.arms:
            if self._pointless(arm):
                continue
            for event in self._run_arm(arm):
                yield event.model_dump(mode="json")
        evidence = assemble(
            self._spec,
            self._reports,
            self._results,
            self._times,
            _shared(self._spec),
        )
        self._forget_caches()
        yield Event(kind="evidence", at=time.time(), data=evidence.model_dump(mode="json")).model_dump(mode="json")

    def _pointless(self, arm: ArmSpec) -> bool:
        """Nothing can be loaded from a cold start that did not come through."""
        cold = [report for report in self._reports if report.role is Role.COLD]
        return arm.role is Role.WARM and any(report.outcome is not Outcome.OK for report in cold)

    def _run_arm(self, spec: ArmSpec) -> Iterator[Event]:
        yield Event(kind="arm-started", at=time.time(), arm=spec.role)
        shape = self._spec.shape
        ranks = 1 if spec.role is Role.REFERENCE else shape.tensor_parallel_size * shape.pipeline_parallel_size
        with Arm(spec, ranks, self._python) as arm:
            for raw in arm.follow():
                if raw["kind"] in PHASE_EVENTS:
                    yield Event(
                        kind="phase", at=time.time(), arm=spec.role, rank=raw.get("rank"), data={"name": raw["name"]}
                    )
        report = arm.report()
        self._reports.append(report)
        result = arm.result()
        if report.outcome is Outcome.OK and result is not None:
            self._results[spec.role] = result
            if spec.role in (Role.COLD, Role.WARM):
                self._times[spec.role] = compile_times(report, result, arm.events, arm.begin, arm.end)
        yield Event(kind="arm-finished", at=time.time(), arm=spec.role, data=report.model_dump(mode="json"))

    def _forget_caches(self) -> None:
        """Compile caches have served once the last arm has run, and are most of what a run leaves on disk."""
        for arm in self._spec.arms:
            shutil.rmtree(arm.cache_root, ignore_errors=True)


def _shared(spec: RunSpec) -> dict[Role, Result]:
    """The results of the shared arms that have run before, by the part they play in this run."""
    folders = {
        Role.PROBE: spec.probe,
        Role.REPLICATED: spec.replicated,
        Role.REFERENCE: spec.reference,
        Role.EVAL_REPLICATED: spec.evaluated,
    }
    return {role: json.loads((Path(folder) / "result.json").read_text()) for role, folder in folders.items() if folder}
