"""The run actor. It carries out one run after another: starts the arms, follows them, compares what they recorded.

Each arm is a child process tree of its own, so a cold compile is really cold, a hang can be killed and a crash cannot
take the actor with it. An arm that dies ends the run's remaining arms of the same purpose, never the evidence.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import shutil
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from workers import artifacts, cache_root, traces
from workers.arms import Arm
from workers.environments.failure import EnvironmentFailure
from workers.environments.provide import provided
from workers.evidence import assemble
from workers.machines.elsewhere import Elsewhere
from workers.machines.followers import Follower
from workers.protocol import ArmReport, ArmSpec, Check, Event, Failure, Outcome, Role, RunSpec
from workers.start_times import Result, compile_times
from workers.starts import TIMED, Starts

PHASE_EVENTS = ("phase-begin",)

COMPARISON = "workers.residual.arms"
"""Imports torch, which takes seconds."""


class RunActor:
    """Executes a :class:`RunSpec` whenever it is given one. Nothing of a run is kept for the next one."""

    def run(self, spec: str, python: str, followers: Sequence[Any] = ()) -> Iterator[dict[str, Any]]:
        """The events of a run as plain dictionaries, the evidence last. A Ray streaming generator.

        ``python`` is the interpreter of the default engine environment. Where the run wants another one, that is had
        on this machine first, and its interpreter takes the place of it. ``followers``: handles of the actors
        (``workers.machines.follower``) on the other machines that the run was given.

        Raises:
            MachineLost: when one of those is gone.
        """
        for event in Run(RunSpec.model_validate_json(spec), python, followers).events():
            yield event.model_dump(mode="json")

    def answer(self) -> None:
        """It is there, and nothing else keeps it busy."""


class Run:
    """One run from its first event to its evidence."""

    def __init__(self, spec: RunSpec, python: str, followers: Sequence[Any] = ()) -> None:
        self._spec = spec
        self._default_python = self._python = python
        self._followers = [Follower(actor, number) for number, actor in enumerate(followers, start=1)]
        self._reports: list[ArmReport] = []
        self._results: dict[Role, Result] = {}
        self._starts = Starts(self._spec.policy)

    def events(self) -> Iterator[Event]:
        """All that happens, the evidence last."""
        with contextlib.ExitStack() as held:
            yield from self._run_arms(held)
        yield from artifacts.keep(self._spec)
        artifacts.fetch_shared(self._spec)
        evidence = assemble(
            self._spec,
            self._reports,
            self._results,
            self._starts.evidence(),
            _shared(self._spec),
        )
        yield Event(kind="evidence", at=time.time(), data=evidence.model_dump(mode="json"))

    def _run_arms(self, held: contextlib.ExitStack) -> Iterator[Event]:
        missing = yield from self._enter_environment(held)
        for number, arm in enumerate(self._spec.arms, start=1):
            if not self._pointless(arm):
                self._get_ready(arm)
                yield from self._run_arm(arm, missing)
            self._forget_cache(arm, self._spec.arms[number:])

    def _enter_environment(self, held: contextlib.ExitStack) -> Generator[Event, None, str | None]:
        """Have the environment of this run until ``held`` is closed; why that is not possible, if it is not."""
        spec = self._spec.environment
        if spec is None:
            return None
        first = self._spec.arms[0].role if self._spec.arms else None
        yield Event(kind="phase", at=time.time(), arm=first, data={"name": "environment"})
        try:
            self._python = held.enter_context(provided(spec, self._python)).python
        except EnvironmentFailure as failure:
            return str(failure)
        return None

    def _pointless(self, arm: ArmSpec) -> bool:
        """A start is not repeated that did not come through, and nothing is loaded from a cold one that did not."""
        failed = [report for report in self._reports if report.outcome is not Outcome.OK]
        unfilled = arm.role is Role.WARM and any(report.role is Role.COLD and report.repeat == 1 for report in failed)
        return unfilled or any(report.role is arm.role for report in failed)

    def _get_ready(self, arm: ArmSpec) -> None:
        """Import what compares while an engine starts that is not timed. Whoever needs it waits for it."""
        if Check.RESIDUAL in self._spec.checks and arm.role not in TIMED:
            threading.Thread(target=importlib.import_module, args=(COMPARISON,), daemon=True).start()

    def _run_arm(self, spec: ArmSpec, missing: str | None) -> Iterator[Event]:
        """``missing``: why there is no interpreter to run it with."""
        yield Event(kind="arm-started", at=time.time(), arm=spec.role)
        trouble = missing or cache_root.trouble(spec.cache_root)
        if trouble is not None:
            yield self._finished(_not_started(spec, trouble))
            return
        elsewhere = self._elsewhere(spec)
        with Arm(elsewhere.leading, elsewhere.ranks, self._python, elsewhere.stacks) as arm, elsewhere.following(arm):
            for raw in arm.follow():
                if raw["kind"] in PHASE_EVENTS:
                    yield Event(
                        kind="phase", at=time.time(), arm=spec.role, rank=raw.get("rank"), data={"name": raw["name"]}
                    )
            elsewhere.end(arm)
        report = _with_trouble(arm.report(), spec.cache_root).model_copy(update={"machines": elsewhere.machines()})
        if spec.traces:
            made = traces.make(arm.folder, arm.events, arm.begin, arm.end)
            report = report.model_copy(update={"traces": made})
        result = arm.result()
        if report.outcome is Outcome.OK and result is not None:
            self._results.setdefault(spec.role, result)
            if spec.role in TIMED:
                times = compile_times(
                    report, result, arm.events, arm.begin, arm.end, Path(spec.cache_root), elsewhere.sizes
                )
                self._starts.add(spec, times, result)
        yield self._finished(report)

    def _elsewhere(self, spec: ArmSpec) -> Elsewhere:
        """What other machines have of the arm. A reference has one rank, and that is here."""
        shape = self._spec.shape
        alone = spec.role is Role.REFERENCE
        ranks = 1 if alone else shape.tensor_parallel_size * shape.pipeline_parallel_size
        followers = [] if alone else self._followers
        return Elsewhere(spec, ranks, followers, self._default_python, self._spec.environment)

    def _finished(self, report: ArmReport) -> Event:
        self._reports.append(report)
        return Event(kind="arm-finished", at=time.time(), arm=report.role, data=report.model_dump(mode="json"))

    def _forget_cache(self, arm: ArmSpec, later: Sequence[ArmSpec]) -> None:
        """A compile cache has served once its last arm has run, and is most of what a run leaves on disk."""
        if all(other.cache_root != arm.cache_root for other in later):
            shutil.rmtree(arm.cache_root, ignore_errors=True)
            for follower in self._followers:
                follower.forget(arm.cache_root)


def _not_started(spec: ArmSpec, trouble: str) -> ArmReport:
    """An engine that could not keep what it compiles would fail anywhere, or be cold for ever."""
    return ArmReport(
        role=spec.role,
        key=spec.key,
        outcome=Outcome.CRASHED,
        wall_s=0.0,
        folder=spec.folder,
        failure=Failure(phase="launch", rank=None, message=trouble, log_tail=[]),
        repeat=spec.repeat,
    )


def _with_trouble(report: ArmReport, root: str) -> ArmReport:
    """A full disk says so itself; what the engine made of it may be anything."""
    trouble = cache_root.trouble(root) if report.failure is not None else None
    if report.failure is None or trouble is None:
        return report
    failure = report.failure.model_copy(update={"message": f"{report.failure.message}; {trouble}"})
    return report.model_copy(update={"failure": failure})


def _shared(spec: RunSpec) -> dict[Role, Result]:
    """The results of the shared arms that have run before, by the part they play in this run."""
    folders = {
        Role.PROBE: spec.probe,
        Role.REPLICATED: spec.replicated,
        Role.REFERENCE: spec.reference,
        Role.EVAL_REPLICATED: spec.evaluated,
    }
    return {role: json.loads((Path(folder) / "result.json").read_text()) for role, folder in folders.items() if folder}
