"""Specifications of runs: where files lie, what is shared, and what a timed arm must not be given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.dispatch.questions import questions_cache
from service.dispatch.runs import Workplace
from service.domain.arms import ArmNeed, RunNeeds
from service.domain.cell import Cell
from service.domain.repeat import Repeat
from service.domain.timeouts import Timeouts
from service.domain.verdict import Verdict
from service.settings import Settings
from workers.protocol import AGAIN, BatchPlan, Check, Environment, Patch, PatchMode, Role, Shape

ENVIRONMENT = Environment(
    vllm="0.31.0", torch="2.13.0", ray="2.56.0", python="3.11.7", device="cpu", devices=0, cores=2
)
SHAPE = Shape(
    tensor_parallel_size=2,
    pipeline_parallel_size=1,
    layers=2,
    hidden_size=128,
    dtype="float32",
    sequence_parallelism=True,
    full_graph=True,
    compiled=True,
)
CHECKS = (Check.COMPILE, Check.RESIDUAL, Check.OUTPUTS)


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    return Workplace("sweep-1", Settings(home=tmp_path), ENVIRONMENT, Timeouts(cold=100.0, warm=20.0, probe=50.0))


def need(role: Role, **fields: Any) -> ArmNeed:
    content: dict[str, Any] = {
        "engine": {"model": "tiny:llama"},
        "patches": dict.fromkeys(Patch, PatchMode.ON),
        "env": {"A": "1"},
        "batch": {"seed": 3},
        "taps": role not in (Role.COLD, Role.WARM),
    }
    return ArmNeed(role, **(content | fields))


NEEDS = RunNeeds(
    own=(need(Role.COLD), need(Role.WARM), need(Role.PROBE)),
    probe=None,
    replicated=need(Role.REPLICATED, engine={"model": "tiny:llama", "sp": False}),
    reference=need(Role.REFERENCE, engine={"model": "tiny:llama", "eager": True}),
)


# --- one arm ---------------------------------------------------------------------------------------------------------


def test_an_arm_is_what_was_needed(place: Workplace, tmp_path: Path) -> None:
    arm = place.arm(need(Role.PROBE), tmp_path / "arm", tmp_path / "cache")
    assert (arm.role, arm.taps, arm.env) == (Role.PROBE, True, {"A": "1"})
    assert arm.engine == {"model": "tiny:llama"}
    assert arm.patches == dict.fromkeys(Patch, PatchMode.ON)
    assert arm.batch == BatchPlan(seed=3)
    assert arm.key == need(Role.PROBE).key(ENVIRONMENT)
    assert (arm.folder, arm.cache_root) == (str(tmp_path / "arm"), str(tmp_path / "cache"))
    assert arm.models_dir == str(tmp_path / "models")


@pytest.mark.parametrize(
    ("role", "timeout_s"),
    [(Role.COLD, 100.0), (Role.WARM, 20.0), (Role.PROBE, 50.0), (Role.REPLICATED, 50.0), (Role.REFERENCE, 50.0)],
)
def test_every_arm_has_its_timeout(place: Workplace, tmp_path: Path, role: Role, timeout_s: float) -> None:
    assert place.arm(need(role), tmp_path, tmp_path).timeout_s == timeout_s


def test_the_limits_of_phase_and_silence_go_with_the_arm(tmp_path: Path) -> None:
    place = Workplace("sweep-1", Settings(home=tmp_path), ENVIRONMENT, Timeouts(phase=5.0, silence=4.0))
    arm = place.arm(need(Role.COLD), tmp_path, tmp_path)
    assert (arm.phase_timeout_s, arm.silence_s) == (5.0, 4.0)


@pytest.mark.parametrize("role", Role)
def test_a_timed_arm_imports_and_finds_out_about_models_by_itself_when_asked_to(
    place: Workplace, tmp_path: Path, role: Role
) -> None:
    alone = replace(place, settings=Settings(home=tmp_path, preload=False)).arm(need(role), tmp_path, tmp_path)
    timed = role in (Role.COLD, Role.WARM)
    assert alone.known_models == (None if timed else str(questions_cache(place.settings)))
    assert not alone.preload
    arm = place.arm(need(role), tmp_path, tmp_path)
    assert (arm.known_models, arm.preload) == (str(questions_cache(place.settings)), True)


@pytest.mark.parametrize("role", Role)
def test_a_timed_arm_is_asked_the_first_wave_alone(place: Workplace, tmp_path: Path, role: Role) -> None:
    batch = {"seed": 3, "waves": [[5, 1], [2]], "staggered": [[4, 4]]}
    found = place.arm(need(role, batch=batch), tmp_path, tmp_path).batch
    whole = BatchPlan(seed=3, waves=[[5, 1], [2]], staggered=[[4, 4]])
    assert found == (BatchPlan(seed=3, waves=[[5, 1]]) if role in (Role.COLD, Role.WARM) else whole)


def test_an_arm_that_evaluates_looks_for_tasks_in_the_operator_s_folder_first(place: Workplace, tmp_path: Path) -> None:
    asked = need(Role.EVAL, evaluation={"tasks": ["gsm8k"], "limit": 8})
    own = replace(place, settings=Settings(home=tmp_path, tasks_dir=tmp_path / "tasks"))
    found = own.arm(asked, tmp_path, tmp_path).evaluation
    assert found is not None
    assert (found.tasks, found.limit, found.num_fewshot) == (["gsm8k"], 8, None)
    assert found.folders[0] == str(tmp_path / "tasks")
    (shipped,) = found.folders[1:]
    assert (Path(shipped) / "shardproof_sums.yaml").exists()
    plain = place.arm(asked, tmp_path, tmp_path).evaluation
    assert plain is not None
    assert plain.folders == [shipped]
    assert place.arm(need(Role.PROBE), tmp_path, tmp_path).evaluation is None


# --- shared arms -----------------------------------------------------------------------------------------------------


def test_equal_needs_share_one_arm_whatever_part_they_play(place: Workplace) -> None:
    probe, twin = need(Role.PROBE), need(Role.REPLICATED)
    assert place.shared_key(probe) == place.shared_key(twin)
    assert place.shared_folder(probe) == place.shared_folder(twin)
    assert place.shared_key(need(Role.PROBE, batch={"seed": 4})) != place.shared_key(probe)


def test_nothing_is_shared_with_another_sweep_or_another_engine(place: Workplace) -> None:
    later = replace(place, sweep_id="sweep-2")
    newer = replace(place, environment=ENVIRONMENT.model_copy(update={"vllm": "0.32.0"}))
    keys = {found.shared_key(need(Role.PROBE)) for found in (place, later, newer)}
    assert len(keys) == 3


def test_the_run_of_a_shared_arm_is_one_engine_start(place: Workplace, tmp_path: Path) -> None:
    wanted = need(Role.REFERENCE)
    run = place.shared_run(wanted, SHAPE)
    assert (run.run_id, run.cell, run.checks) == (place.shared_key(wanted), "reference", [])
    assert (run.probe, run.replicated, run.reference) == (None, None, None)
    (arm,) = run.arms
    folder = tmp_path / "artifacts" / "sweep-1" / "arms" / place.shared_key(wanted)
    assert (arm.folder, arm.cache_root) == (str(folder), str(folder / "cache"))
    assert place.shared_folder(wanted) == folder


# --- the run of a cell -----------------------------------------------------------------------------------------------


CELL = Cell("c1", "c1", {"batch.seed": 5}, (Verdict.PASS,), CHECKS, ())


def test_the_run_of_a_cell_has_its_own_arms_and_looks_at_the_shared_ones(place: Workplace, tmp_path: Path) -> None:
    run = place.cell_run("run-1", CELL, NEEDS, SHAPE, lost=set())
    assert (run.run_id, run.cell, tuple(run.checks), run.shape) == ("run-1", "c1", CHECKS, SHAPE)
    assert run.batch == BatchPlan(seed=5)
    folder = tmp_path / "artifacts" / "sweep-1" / "cells" / "c1" / "run-1"
    assert {arm.role: Path(arm.folder) for arm in run.arms} == {
        Role.COLD: folder / "cold", Role.WARM: folder / "warm", Role.PROBE: folder / "probe",
    }  # fmt: skip
    assert [arm.role for arm in run.arms] == [Role.COLD, Role.WARM, Role.PROBE]
    assert NEEDS.replicated is not None
    assert NEEDS.reference is not None
    assert run.probe is None
    assert run.replicated == str(place.shared_folder(NEEDS.replicated))
    assert run.reference == str(place.shared_folder(NEEDS.reference))


def test_cold_and_warm_share_one_cache_and_nobody_else_has_it(place: Workplace) -> None:
    run = place.cell_run("run-1", CELL, NEEDS, SHAPE, lost=set())
    again = place.cell_run("run-2", CELL, NEEDS, SHAPE, lost=set())
    caches = {arm.role: arm.cache_root for arm in run.arms}
    assert caches[Role.COLD] == caches[Role.WARM]
    assert caches[Role.PROBE] != caches[Role.COLD]
    # A second attempt is cold again.
    assert not set(caches.values()) & {arm.cache_root for arm in again.arms}
    shared = place.shared_run(need(Role.REPLICATED), SHAPE).arms[0].cache_root
    assert shared not in caches.values()


def test_every_cold_start_is_cold_and_every_warm_one_has_what_the_first_saved(place: Workplace) -> None:
    run = replace(place, repeat=Repeat(cold=3, warm=2)).cell_run("run-1", CELL, NEEDS, SHAPE, lost=set())
    assert [(arm.role, arm.repeat) for arm in run.arms] == [
        (Role.COLD, 1), (Role.COLD, 2), (Role.COLD, 3), (Role.WARM, 1), (Role.WARM, 2), (Role.PROBE, 1),
    ]  # fmt: skip
    first, *colds = [arm.cache_root for arm in run.arms if arm.role is Role.COLD]
    assert {arm.cache_root for arm in run.arms if arm.role is Role.WARM} == {first}
    assert len({first, *colds}) == 3
    assert len({arm.folder for arm in run.arms}) == len(run.arms)
    # What is not repeated lies where it always does.
    once = place.cell_run("run-1", CELL, NEEDS, SHAPE, lost=set())
    assert once.arms == [run.arms[0], run.arms[3], run.arms[5]]


def test_a_cell_whose_probe_is_shared_is_told_where_it_is(place: Workplace) -> None:
    twin = need(Role.REPLICATED)
    run = place.cell_run("run-1", CELL, RunNeeds((), twin, None, None), SHAPE, lost=set())
    assert (run.arms, run.probe) == ([], str(place.shared_folder(twin)))
    assert (run.replicated, run.reference) == (None, None)


@pytest.mark.parametrize("role", ["probe", "replicated", "reference"])
def test_a_shared_arm_that_was_lost_is_not_looked_at(place: Workplace, role: str) -> None:
    shared = replace(NEEDS, own=(), probe=need(Role.REPLICATED))
    lost = {place.shared_key(getattr(shared, role))}
    run = place.cell_run("run-1", CELL, shared, SHAPE, lost)
    seen = {name for name in ("probe", "replicated", "reference") if getattr(run, name) is not None}
    assert seen == {"probe", "replicated", "reference"} - {role}
    elsewhere = replace(place, sweep_id="sweep-2")
    other = {elsewhere.shared_key(getattr(shared, role))}
    assert getattr(place.cell_run("run-1", CELL, shared, SHAPE, other), role) is not None


# --- trials ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", Role)
def test_what_others_are_compared_with_is_run_twice(place: Workplace, tmp_path: Path, role: Role) -> None:
    again = [trial for trial in place.arm(need(role), tmp_path, tmp_path).trials if trial.name == AGAIN]
    assert [(trial.batch, trial.fault) for trial in again] == ([(BatchPlan(seed=3), None)] * (role is Role.REPLICATED))
