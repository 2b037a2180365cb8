"""Specifications of runs: where an arm's files lie, and which shared arms a cell's run looks at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from service.dispatch.questions import environment_suffix, questions_cache
from service.domain.arms import ArmNeed, RunNeeds
from service.domain.cell import Cell
from service.domain.fingerprint import digest
from service.domain.repeat import ONCE, Repeat
from service.domain.timeouts import Timeouts
from service.settings import Settings
from service.tasks import evaluation_of
from workers.protocol import (
    AGAIN,
    ROUNDING,
    ArmSpec,
    ArtifactsPlace,
    BatchPlan,
    Environment,
    EnvironmentSpec,
    Fault,
    Role,
    RunSpec,
    Shape,
    Trial,
)

TIMED = (Role.COLD, Role.WARM)


@dataclass(frozen=True)
class Workplace:
    """One sweep's place on disk, and what its arms in one engine environment have in common.

    ``settings``: with the interpreter of that environment. ``engine``: how to have it, ``None`` for the default one.
    """

    sweep_id: str
    settings: Settings
    environment: Environment
    timeouts: Timeouts
    repeat: Repeat = ONCE
    engine: EnvironmentSpec | None = None
    traces: bool = False

    @property
    def root(self) -> Path:
        return self.settings.artifacts_dir / self.sweep_id

    def shared_key(self, need: ArmNeed) -> str:
        """Shared within the sweep: a sweep never judges by what an earlier one recorded."""
        return digest([self.sweep_id, need.key(self.environment)])

    def shared_folder(self, need: ArmNeed) -> Path:
        return self.root / "arms" / self.shared_key(need)

    def arm(self, need: ArmNeed, folder: Path, cache_root: Path, repeat: int = 1, traces: bool = False) -> ArmSpec:
        timed = need.role in TIMED
        return ArmSpec(
            role=need.role,
            key=need.key(self.environment),
            engine=need.engine,
            patches=need.patches,
            env=need.env,
            batch=_timed_batch(BatchPlan(**need.batch)) if timed else BatchPlan(**need.batch),
            taps=need.taps,
            folder=str(folder),
            cache_root=str(cache_root),
            models_dir=str(self.settings.models_dir),
            timeout_s=self.timeouts.of(need.role),
            phase_timeout_s=self.timeouts.of_phase(need.role),
            silence_s=self.timeouts.of_silence(need.role),
            known_models=None if timed and not self.settings.preload else str(questions_cache(self.settings)),
            toolchain=None if timed else str(self._toolchain),
            trials=[*_again(need), *_perturbed(BatchPlan(**need.batch), need.perturbations)],
            evaluation=evaluation_of(need.evaluation, self.settings),
            preload=self.settings.preload,
            repeat=repeat,
            traces=traces,
        )

    @property
    def _toolchain(self) -> Path:
        return self.settings.home / "cache" / f"toolchain{environment_suffix(self.settings)}"

    def shared_run(self, need: ArmNeed, shape: Shape, attempt: int = 1) -> RunSpec:
        """The run of a shared arm: one engine start, nothing compared.

        Each ``attempt``, from 1, has a folder of its own: what is left of an earlier one may still be dying in its.
        """
        folder = self.shared_folder(need)
        run_id = folder.name if attempt == 1 else f"{folder.name}-{attempt}"
        folder = folder.with_name(run_id)
        arm = self.arm(need, folder, folder / "cache")
        return RunSpec(
            run_id=run_id,
            cell=need.role,
            checks=[],
            arms=[arm],
            shape=shape,
            environment=self.engine,
            artifacts=self._artifacts,
        )

    def cell_run(
        self,
        run_id: str,
        cell: Cell,
        needs: RunNeeds,
        shape: Shape,
        lost: set[str],
        plan: BatchPlan | None = None,
        folders: Mapping[str, str] = MappingProxyType({}),
    ) -> RunSpec:
        """The run of ``cell``. Shared arms whose key is in ``lost`` did not come through and are not looked at.

        ``plan``: the requests that the arms were given; without it, what the matrix wrote. ``folders``: where shared
        arms lie, by key; without it, where their first attempt does.
        """
        folder = self.root / "cells" / cell.id / run_id
        arms = [
            self.arm(need, folder / _start(need.role, repeat), folder / _cache(need.role, repeat), repeat, self.traces)
            for need in needs.own
            for repeat in range(1, self.repeat.of(need.role) + 1)
        ]
        return RunSpec(
            run_id=run_id,
            cell=cell.id,
            checks=list(cell.checks),
            batch=plan or BatchPlan(**cell.batch),
            arms=arms,
            shape=shape,
            probe=self._found(needs.probe, lost, folders),
            replicated=self._found(needs.replicated, lost, folders),
            reference=self._found(needs.reference, lost, folders),
            evaluated=self._found(needs.evaluated, lost, folders),
            environment=self.engine,
            artifacts=self._artifacts,
        )

    @property
    def _artifacts(self) -> ArtifactsPlace | None:
        url = self.settings.artifacts_url
        return None if url is None else ArtifactsPlace(url=url, root=str(self.settings.artifacts_dir))

    def _found(self, need: ArmNeed | None, lost: set[str], folders: Mapping[str, str]) -> str | None:
        if need is None or self.shared_key(need) in lost:
            return None
        return folders.get(self.shared_key(need), str(self.shared_folder(need)))


def _start(role: Role, repeat: int) -> str:
    return role if repeat == 1 else f"{role}-{repeat}"


def _cache(role: Role, repeat: int) -> str:
    """All warm starts share the cache root of the first cold one; every other arm has its own."""
    filled = role is Role.WARM or (role is Role.COLD and repeat == 1)
    return "cache" if filled else f"{_start(role, repeat)}-cache"


def _timed_batch(plan: BatchPlan) -> BatchPlan:
    """The first wave. That a timed start answers, and a warm one as the cold one, it shows; the rest is for others."""
    return plan.model_copy(update={"waves": plan.waves[:1], "staggered": []})


def _again(need: ArmNeed) -> list[Trial]:
    """What others are compared with has to be the same when it is run twice."""
    return [Trial(name=AGAIN, batch=BatchPlan(**need.batch))] if need.role is Role.REPLICATED else []


def _perturbed(plan: BatchPlan, times: int) -> list[Trial]:
    """The plan again and again, each time with another rounding error in the first all-reduce: the embedding."""
    rounding = [Fault(kind=ROUNDING, site=0, seed=seed) for seed in range(1, times + 1)]
    return [Trial(name=f"{ROUNDING}-{fault.seed}", batch=plan, fault=fault) for fault in rounding]
