"""Which engine starts a cell needs, and which of them it shares with other cells."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.domain.arms import MEANS_NOTHING_WITHOUT_SP, SP, ArmNeed, RunNeeds, needs
from service.domain.cell import Cell
from service.domain.verdict import Verdict
from workers.protocol import BatchPlan, Check, Environment, Patch, PatchMode, Role, Shape

ENVIRONMENT = Environment(
    vllm="0.31.0", torch="2.13.0", ray="2.56.0", python="3.11.7", device="cpu", devices=0, cores=2
)
SPLITTING = "compilation_config.splitting_ops"
PARTITION = "compilation_config.use_inductor_graph_partition"
ALL = (Check.AUDIT, Check.COMPILE, Check.RESIDUAL, Check.OUTPUTS)


def shape(sp: bool, **fields: Any) -> Shape:
    resolved: dict[str, Any] = {
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 1,
        "layers": 2,
        "hidden_size": 128,
        "dtype": "float32",
        "sequence_parallelism": sp,
        "full_graph": True,
        "compiled": True,
    }
    return Shape(**(resolved | fields))


def cell(checks: tuple[Check, ...] = ALL, **requested: Any) -> Cell:
    """``requested`` on top of a small model on two ranks; ``a__b`` stands for the key ``a.b``."""
    settings = {"model": "tiny:llama", "tensor_parallel_size": 2}
    settings |= {key.replace("__", "."): value for key, value in requested.items()}
    return Cell("c1", "cell", settings, (Verdict.PASS,), checks, ("matrix",))


def of(sp: bool, checks: tuple[Check, ...] = ALL, more: dict[str, Any] | None = None, **requested: Any) -> RunNeeds:
    """The needs of a cell that asks for ``sp`` and has it."""
    asked = cell(checks, **requested)
    return needs(replace(asked, requested={**asked.requested, SP: sp, **(more or {})}), shape(sp))


def key(need: ArmNeed | None, **environment: Any) -> str:
    assert need is not None
    return need.key(ENVIRONMENT.model_copy(update=environment))


def test_environments_of_the_same_versions_share_no_arm() -> None:
    shared = of(sp=True).replicated
    assert len({key(shared), key(shared, address="a"), key(shared, address="b"), key(shared, vllm="0.30.0")}) == 4


def roles(found: RunNeeds) -> list[Role]:
    return [need.role for need in found.own]


# --- which arms ------------------------------------------------------------------------------------------------------


def test_a_cell_with_sp_runs_its_own_probe_and_shares_what_it_is_compared_with() -> None:
    found = of(sp=True)
    assert roles(found) == [Role.COLD, Role.WARM, Role.PROBE]
    assert found.probe is None
    assert [need.role for need in found.shared] == [Role.REPLICATED, Role.REFERENCE]


def test_the_probe_of_a_cell_without_sp_is_the_shared_replicated_arm() -> None:
    off, on = of(sp=False), of(sp=True)
    assert roles(off) == [Role.COLD, Role.WARM]
    assert key(off.probe) == key(on.replicated)
    assert off.replicated is None
    assert key(off.reference) == key(on.reference)


def test_sp_that_the_engine_turned_off_counts_as_off() -> None:
    asked = cell(tensor_parallel_size=1, compilation_config__pass_config__enable_sp=True)
    found = needs(asked, shape(sp=False, tensor_parallel_size=1))
    assert found.probe is not None
    assert found.probe.engine[SP] is False
    assert roles(found) == [Role.COLD, Role.WARM]


@pytest.mark.parametrize(
    "more",
    [{SPLITTING: ["vllm::unified_attention"]}, {"patches.full_graph_sp": "off"}],
    ids=["split graph", "patch off"],
)
def test_a_cell_without_sp_that_runs_something_else_has_a_probe_of_its_own(more: dict[str, Any]) -> None:
    found = of(sp=False, more=more)
    assert (roles(found), found.probe) == ([Role.COLD, Role.WARM, Role.PROBE], None)
    assert key(found.own[-1]) != key(of(sp=False).probe)


@pytest.mark.parametrize(
    ("checks", "own", "shared"),
    [
        ((Check.AUDIT,), [], []),
        ((Check.COMPILE,), ["cold", "warm"], []),
        ((Check.RESIDUAL,), ["probe"], ["replicated"]),
        ((Check.OUTPUTS,), ["probe"], ["replicated", "reference"]),
        ((Check.COMPILE, Check.RESIDUAL), ["cold", "warm", "probe"], ["replicated"]),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else "",
)
def test_only_what_the_checks_ask_for_runs(checks: tuple[Check, ...], own: list[str], shared: list[str]) -> None:
    found = of(sp=True, checks=checks)
    assert (roles(found), [need.role for need in found.shared]) == (own, shared)


def test_without_sp_the_residual_is_held_against_the_reference() -> None:
    found = of(sp=False, checks=(Check.RESIDUAL,))
    assert (roles(found), [need.role for need in found.shared]) == ([], ["replicated", "reference"])


def test_nothing_is_timed_where_nothing_compiles() -> None:
    eager = needs(cell(enforce_eager=True), shape(sp=False, compiled=False))
    assert roles(eager) == []
    assert eager.probe is not None
    assert eager.reference is not None


def test_timed_arms_have_no_taps_and_all_others_have() -> None:
    found = of(sp=True)
    assert {need.role: need.taps for need in (*found.own, *found.shared)} == {
        Role.COLD: False, Role.WARM: False, Role.PROBE: True, Role.REPLICATED: True, Role.REFERENCE: True,
    }  # fmt: skip


EVALUATES: dict[str, Any] = {"eval.tasks": ["sums"], "eval.limit": 8}


def test_with_sp_the_evaluation_is_the_cell_s_own_and_its_twin_is_shared() -> None:
    found = of(sp=True, checks=(Check.EVAL,), more={**EVALUATES, SPLITTING: [], "batch.seed": 3})
    (own,) = found.own
    (twin,) = found.shared
    assert (own.role, own.engine[SP], own.taps, own.batch) == (Role.EVAL, True, False, {})
    assert (twin.role, twin.engine[SP], twin.taps) == (Role.EVAL_REPLICATED, False, False)
    assert own.evaluation == twin.evaluation == {"tasks": ["sums"], "limit": 8}
    assert found.stand_ins == ()


def test_without_sp_the_shared_evaluation_stands_in_for_the_cell_s_own() -> None:
    found = of(sp=False, checks=(Check.EVAL,), more=EVALUATES)
    assert found.own == ()
    assert found.stand_ins == (found.evaluated,)
    assert key(found.evaluated) == key(of(sp=True, checks=(Check.EVAL,), more=EVALUATES).evaluated)


def test_without_sp_what_runs_something_else_evaluates_by_itself() -> None:
    found = of(sp=False, checks=(Check.EVAL,), more={**EVALUATES, "patches.full_graph_sp": "off"})
    assert (roles(found), found.shared) == ([Role.EVAL], ())


def test_another_evaluation_is_another_arm() -> None:
    one, other = (of(sp=True, checks=(Check.EVAL,), more={**EVALUATES, "eval.limit": limit}) for limit in (8, 9))
    assert key(one.evaluated) != key(other.evaluated)


def test_the_evaluation_leaves_the_other_arms_as_they_are() -> None:
    plain, more = of(sp=True), of(sp=True, checks=(*ALL, Check.EVAL), more=EVALUATES)
    assert [need for need in more.own if need.role is not Role.EVAL] == list(plain.own)
    assert more.shared[:-1] == plain.shared


# --- the replicated arm ----------------------------------------------------------------------------------------------

ONLY_SHAPES_SP: tuple[dict[str, Any], ...] = (
    {SPLITTING: []},
    {SPLITTING: ["vllm::unified_attention"]},
    {PARTITION: True},
    {"compilation_config.pass_config.sp_min_token_num": 4},
    {"compilation_config.pass_config.fuse_gemm_comms": True},
    {"patches.full_graph_sp": "off"},
    {"patches.full_graph_sp": "native", "patches.fallback_fast_path": "off"},
)


@pytest.mark.parametrize("more", ONLY_SHAPES_SP, ids=lambda more: str(next(iter(more))))
def test_cells_that_differ_only_in_how_sp_compiles_share_one_replicated_arm(more: dict[str, Any]) -> None:
    plain, other = of(sp=True), of(sp=True, more=more)
    assert key(other.own[-1]) != key(plain.own[-1])
    assert key(other.replicated) == key(plain.replicated)
    assert key(other.reference) == key(plain.reference)


@pytest.mark.parametrize(
    "more", [{"dtype": "bfloat16"}, {"env.OMP_X": "1"}, {"batch.seed": 1}, {"compilation_config.backend": "eager"}]
)
def test_what_changes_more_than_sp_has_a_replicated_arm_of_its_own(more: dict[str, Any]) -> None:
    assert key(of(sp=True, more=more).replicated) != key(of(sp=True).replicated)


def test_the_replicated_arm_is_the_cell_with_sp_off_and_patched() -> None:
    more = {"env.A": "1", "batch.seed": 3, "patches.full_graph_sp": "off", "compilation_config.backend": "inductor"}
    found = of(sp=True, more=more).replicated
    assert found is not None
    assert found.engine == {
        "model": "tiny:llama", "tensor_parallel_size": 2, "compilation_config.backend": "inductor", SP: False,
    }  # fmt: skip
    assert found.patches == dict.fromkeys(Patch, PatchMode.ON)
    assert (found.env, found.batch) == ({"A": "1"}, {"seed": 3})


def test_settings_that_shape_sp_alone_mean_nothing_to_a_probe_without_it() -> None:
    for name in MEANS_NOTHING_WITHOUT_SP:
        found = of(sp=False, more={name: False})
        assert key(found.probe) == key(of(sp=False).probe), name


# --- the reference arm -----------------------------------------------------------------------------------------------


def test_the_reference_drops_parallel_and_compile_settings() -> None:
    more = {
        "pipeline_parallel_size": 2,
        "distributed_executor_backend": "mp",
        "enable_expert_parallel": True,
        "compilation_config.mode": 3,
        "dtype": "float32",
        "env.VLLM_X": "1",
        "patches.full_graph_sp": "off",
        "batch.seed": 3,
    }
    found = of(sp=True, more=more).reference
    assert found is not None
    assert found.engine == {
        "model": "tiny:llama", "dtype": "float32", "tensor_parallel_size": 1, "enforce_eager": True,
    }  # fmt: skip
    assert found.env == {}
    assert found.patches == dict.fromkeys(Patch, PatchMode.ON)
    assert found.batch == {"seed": 3}


def test_a_compilation_config_written_as_a_whole_is_dropped_too() -> None:
    asked = needs(cell(compilation_config={"mode": 3, "pass_config": {"enable_sp": True}}), shape(sp=True))
    assert key(asked.reference) == key(of(sp=True).reference)


@pytest.mark.parametrize("more", [{"tensor_parallel_size": 4}, {"pipeline_parallel_size": 2}, {PARTITION: True}])
def test_one_reference_serves_every_layout(more: dict[str, Any]) -> None:
    assert key(of(sp=True, more=more).reference) == key(of(sp=False).reference)


# --- the same requests in the same steps -------------------------------------------------------------------------

STEPS = {
    "max_num_batched_tokens": 64,
    "max_num_seqs": 8,
    "max_model_len": 512,
    "chunked_prefill": True,
    "async_scheduling": False,
    "block_size": 16,
}
PINNED = {
    "max_num_batched_tokens": 64,
    "max_num_seqs": 8,
    "max_model_len": 512,
    "enable_chunked_prefill": True,
    "async_scheduling": False,
}


def test_every_arm_is_given_the_plan() -> None:
    plan = BatchPlan(waves=[[3]], staggered=[[1, 1]])
    found = needs(cell(batch__seed=1), shape(sp=True), plan)
    assert len((*found.own, *found.shared)) == 5
    assert all(BatchPlan(**need.batch) == plan for need in (*found.own, *found.shared))


def test_the_reference_puts_steps_together_as_the_cell_does() -> None:
    found = needs(cell(), shape(sp=True, **STEPS))
    assert found.reference is not None
    assert found.reference.engine == {
        "model": "tiny:llama", "dtype": "float32", "tensor_parallel_size": 1, "enforce_eager": True, **PINNED,
    }  # fmt: skip
    # The others have as many ranks as the cell, and resolve the same by themselves.
    others = [need for need in (*found.own, *found.shared) if need is not found.reference]
    assert not any(set(PINNED) & set(need.engine) for need in others)


def test_a_block_of_the_cache_is_as_large_in_the_reference_where_it_is_read_again() -> None:
    found = needs(cell(batch__prefix_caching=True), shape(sp=True, **STEPS)).reference
    assert found is not None
    assert (found.engine["block_size"], found.engine["enable_prefix_caching"]) == (16, True)


def test_what_a_shape_does_not_know_is_left_to_the_engine() -> None:
    found = needs(cell(), shape(sp=True, max_num_batched_tokens=64)).reference
    assert found is not None
    assert set(found.engine) & set(PINNED) == {"max_num_batched_tokens", "enable_chunked_prefill"}


# --- keys ------------------------------------------------------------------------------------------------------------

NEED = ArmNeed(
    role=Role.PROBE,
    engine={"model": "tiny:llama", SP: True},
    patches=dict.fromkeys(Patch, PatchMode.ON),
    env={"A": "1"},
    batch={"seed": 0},
    taps=True,
)


@pytest.mark.parametrize("role", Role)
def test_the_key_ignores_the_role(role: Role) -> None:
    assert key(replace(NEED, role=role)) == key(NEED)


@pytest.mark.parametrize(
    "change",
    [
        {"engine": {"model": "tiny:llama", SP: False}},
        {"patches": dict.fromkeys(Patch, PatchMode.ON) | {Patch.FULL_GRAPH_SP: PatchMode.OFF}},
        {"env": {"A": "2"}},
        {"batch": {"seed": 1}},
        {"taps": False},
    ],
    ids=lambda change: str(next(iter(change))),
)
def test_the_key_depends_on_the_content(change: dict[str, Any]) -> None:
    assert key(replace(NEED, **change)) != key(NEED)


@pytest.mark.parametrize(
    "change", [{"vllm": "0.30.0"}, {"torch": "2.12.0"}, {"python": "3.12.1"}, {"device": "H200", "devices": 1}], ids=str
)
def test_the_key_depends_on_the_versions_and_the_device(change: dict[str, Any]) -> None:
    assert key(NEED, **change) != key(NEED)


@settings(deadline=None, max_examples=50)
@given(st.permutations(["a", "b", "c", "d"]))
def test_the_key_does_not_depend_on_the_order_of_settings(order: list[str]) -> None:
    ordered = {name: ord(name) for name in sorted(order)}
    shuffled = {name: ord(name) for name in order}
    assert key(replace(NEED, engine=shuffled, env={name: name for name in order})) == key(
        replace(NEED, engine=ordered, env={name: name for name in sorted(order)})
    )


@settings(deadline=None, max_examples=60)
@given(st.sets(st.sampled_from(Check), min_size=1), st.booleans(), st.booleans(), st.sampled_from(ONLY_SHAPES_SP))
def test_whatever_is_compared_has_something_to_be_compared_with(
    checks: set[Check], sp: bool, compiled: bool, more: dict[str, Any]
) -> None:
    asked = cell(tuple(checks))
    found = needs(replace(asked, requested={**asked.requested, SP: sp, **more}), shape(sp, compiled=compiled))
    compares = bool(checks & {Check.RESIDUAL, Check.OUTPUTS})
    probed = found.probe is not None or Role.PROBE in roles(found)
    assert probed is compares
    assert (found.replicated is not None or found.reference is not None) is compares
    # A warm start comes after its cold one and loads what that one compiled.
    timed = [need for need in found.own if need.role not in (Role.PROBE, Role.EVAL)]
    assert [need.role for need in timed] in ([], [Role.COLD, Role.WARM])
    assert len({key(need) for need in timed}) <= 1
