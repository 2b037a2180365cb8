"""What is compared and checked in a run, from the folders its arms left behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from workers.evidence import outputs, sequence_parallelism
from workers.protocol import (
    AGAIN,
    INVARIANTS,
    ROUNDING,
    ArmSpec,
    Check,
    Invariant,
    Patch,
    PatchMode,
    Policy,
    Residual,
    Role,
    RunSpec,
    Shape,
)
from workers.residual.arms import examine
from workers.residual.question import ACCUMULATED

from .catalogue import HIDDEN, LAYERS, SITES, STEPS, Layout, Whole, residual, write, write_control

SCATTERED, REPLICATED = Layout(2, True), Layout(2, False)


def shape(ranks: int = 2, sp: bool = True, **fields: Any) -> Shape:
    resolved: dict[str, Any] = {
        "tensor_parallel_size": ranks, "pipeline_parallel_size": 1, "layers": LAYERS, "hidden_size": HIDDEN,
        "dtype": "float32", "sequence_parallelism": sp, "full_graph": True, "compiled": True,
    }  # fmt: skip
    return Shape(**(resolved | fields))


def spec(ranks: int, sp: bool, replicated: Path | None, reference: Path | None, **fields: Any) -> RunSpec:
    asked: dict[str, Any] = {
        "run_id": "r1", "cell": "c1", "checks": [Check.RESIDUAL, Check.OUTPUTS], "arms": [], "shape": shape(ranks, sp),
        "replicated": str(replicated) if replicated else None, "reference": str(reference) if reference else None,
    }  # fmt: skip
    return RunSpec(**(asked | fields))


def residuals(asked: RunSpec, probe: Path) -> list[Residual]:
    return examine(asked, probe)[0]


def checked(asked: RunSpec, probe: Path) -> list[Invariant]:
    return examine(asked, probe)[1]


def rounded(seed: int) -> Whole:
    def whole(step: int, site: int) -> torch.Tensor:
        draw = torch.Generator().manual_seed(seed)
        right = residual(step, site)
        return right * (1 + 2e-7 * (torch.randint(0, 2, right.shape, generator=draw) * 2 - 1))

    return whole


def census(rewritten: bool) -> list[dict[str, Any]]:
    done = SITES if rewritten else 0
    return [
        {"compile_range": [1, 64], "applicable": True, "all_reduce_before": SITES, "all_reduce_after": SITES - done,
         "reduce_scatter_after": done, "all_gather_after": done, "claimed": done, "structure": "one"}
    ]  # fmt: skip


def told(ranks: int, rewritten: bool = True) -> dict[str, Any]:
    return {"ranks": [{"rank": rank, "census": census(rewritten), "norms": {"norm": "b"}} for rank in range(ranks)]}


def arms(root: Path, ranks: int, perturbed: int = 0, dtype: str = "float32") -> tuple[Path, Path, Path]:
    """Probe, replicated arm (run twice, and with rounding errors), reference."""
    replicated = Layout(ranks, False)
    write(root / "probe", Layout(ranks, True), result=told(ranks))
    write(root / "replicated", replicated)
    write(root / "replicated" / AGAIN, replicated)
    for seed in range(1, perturbed + 1):
        write(root / "replicated" / f"{ROUNDING}-{seed}", replicated, rounded(seed))
    write_control(root / "reference")
    return root / "probe", root / "replicated", root / "reference"


@pytest.mark.parametrize("ranks", [2, 4])
def test_bit_equality_is_owed_to_the_replicated_arm_on_two_ranks_only(tmp_path: Path, ranks: int) -> None:
    probe, replicated, reference = arms(tmp_path, ranks)
    found = residuals(spec(ranks, True, replicated, reference), probe)
    assert [(item.subject, item.against, item.scattered) for item in found] == [
        ("replicated", "replicated", False), ("probe", "replicated", True), ("replicated", "reference", False),
        ("probe", "reference", True),
    ]  # fmt: skip
    assert [item.bitwise_required for item in found] == [True, ranks == 2, False, False]
    own = "bitwise" if ranks == 2 else "modelled"
    assert [item.floor for item in found] == ["bitwise", own, "modelled", "measured"]
    assert all(item.bitwise_equal and not item.missing and not item.steps_left_out for item in found)


def test_the_floor_is_measured_in_perturbed_runs_whose_seeds_are_kept(tmp_path: Path) -> None:
    probe, replicated, reference = arms(tmp_path, 4, perturbed=3)
    found = residuals(spec(4, True, replicated, reference), probe)[1]
    assert (found.floor, found.seeds) == ("measured", [1, 2, 3])
    assert all(1e-7 < score.floor < 3e-7 for score in found.scores)


def test_the_model_is_the_policy_s(tmp_path: Path) -> None:
    probe, replicated, reference = arms(tmp_path, 4)
    policy = Policy(modelled_factor=2.0, modelled_growth=3.0)
    found = residuals(spec(4, True, replicated, reference, policy=policy), probe)[1]
    eps = (1 + ACCUMULATED) * torch.finfo(torch.float32).eps
    assert [score.floor for score in found.scores[::4]] == pytest.approx([eps * f for f in (2, 6, 6, 18, 18)])


def test_without_sp_the_probe_is_held_against_the_reference(tmp_path: Path) -> None:
    probe, reference = write(tmp_path / "probe", REPLICATED), write_control(tmp_path / "reference")
    (found,) = residuals(spec(2, False, None, reference), probe)
    assert (found.subject, found.against, found.scattered, found.replicas_equal) == ("probe", "reference", False, True)


def test_an_arm_that_recorded_nothing_is_missing_in_full(tmp_path: Path) -> None:
    probe, replicated, _ = arms(tmp_path, 2)
    (probe / "taps-rank1.safetensors").unlink()
    _, found = residuals(spec(2, True, replicated, None), probe)
    assert found.missing == ["rank 1 recorded no residual: taps-rank1.safetensors is not in the arm's folder"]
    assert (found.sites, found.elements, found.bitwise_equal) == (0, 0, None)
    said = [item for item in checked(spec(2, True, replicated, None), probe) if item.arm is Role.PROBE]
    assert [(item.name, item.held, item.detail) for item in said] == [(n, None, found.missing[0]) for n in INVARIANTS]


def test_a_graph_that_was_not_rewritten_leaves_every_rank_the_whole(tmp_path: Path) -> None:
    """That is for the verdict ``not-exercised`` to say; the residual itself is right."""
    probe = write(tmp_path / "probe", REPLICATED, result=told(2, rewritten=False))
    _, replicated, _ = arms(tmp_path / "others", 2)
    found = residuals(spec(2, True, replicated, None), probe)[1]
    assert (found.bitwise_equal, found.first_divergence, found.replicas_equal) == (True, None, True)
    assert (found.scattered_rows, found.replicated_rows) == (0, sum(STEPS) * SITES)


# --- run twice -------------------------------------------------------------------------------------------------------


def test_an_arm_that_is_not_the_same_twice_is_told_with_the_likely_cause(tmp_path: Path) -> None:
    probe, replicated, _ = arms(tmp_path, 2)

    def other(step: int, site: int) -> torch.Tensor:
        return residual(step, site) + (1e-7 if (step, site) == (1, 3) else 0.0)

    write(replicated / AGAIN, REPLICATED, other)
    again, against = residuals(spec(2, True, replicated, None), probe)
    assert against.first_divergence is None
    found = again.first_divergence
    assert found is not None
    assert (found.step, found.site, again.wrong_steps) == (1, "1.attn", 1)
    assert "1 of 3 steps differ, the first ones do not" in found.sentence


def test_an_arm_that_was_not_run_twice_is_not_compared_with_itself(tmp_path: Path) -> None:
    probe, replicated = write(tmp_path / "probe", SCATTERED), write(tmp_path / "replicated", REPLICATED)
    found = residuals(spec(2, True, replicated, None), probe)
    assert [(item.subject, item.against) for item in found] == [("probe", "replicated")]


def test_a_shared_probe_was_run_twice_too(tmp_path: Path) -> None:
    _, shared, reference = arms(tmp_path, 2)
    found = residuals(spec(2, False, None, reference, probe=str(shared)), shared)
    assert [(item.subject, item.against) for item in found] == [("replicated", "replicated"), ("probe", "reference")]
    own = residuals(spec(2, False, None, reference), shared)
    assert [(item.subject, item.against) for item in own] == [("probe", "reference")]


def answers(folder: Path, tokens: list[int]) -> None:
    answer = {"prompt": [1], "tokens": tokens, "logprobs": [-0.5] * len(tokens), "top": [{}] * len(tokens)}
    (folder / "result.json").write_text(json.dumps({"outputs": [answer]}))


def test_the_answers_of_both_runs_are_compared(tmp_path: Path) -> None:
    (tmp_path / AGAIN).mkdir()
    for again, klass in (([3, 4], "identical"), ([3, 5], "flip")):
        answers(tmp_path, [3, 4])
        answers(tmp_path / AGAIN, again)
        for asked in (spec(2, True, tmp_path, None), spec(2, False, None, None, probe=str(tmp_path))):
            (found,) = outputs(asked, {})
            assert (found.subject, found.against, found.klass) == ("replicated", "replicated", klass)
        assert outputs(spec(2, False, None, None), {}) == []


# --- invariants of a run ---------------------------------------------------------------------------------------------


def test_both_arms_of_a_run_are_checked(tmp_path: Path) -> None:
    probe, replicated, reference = arms(tmp_path, 2)
    found = checked(spec(2, True, replicated, reference), probe)
    assert [(item.arm, item.name) for item in found] == [
        (role, name) for role in (Role.PROBE, Role.REPLICATED) for name in INVARIANTS
    ]
    held = {(item.arm, item.name) for item in found if item.held}
    assert not [item for item in found if item.held is False]
    assert held >= {(Role.PROBE, "shards-complete"), (Role.PROBE, "token-order"), (Role.PROBE, "collectives"),
                    (Role.PROBE, "norm-weights-equal"), (Role.PROBE, "graphs-equal"),
                    (Role.REPLICATED, "replicas-equal"), (Role.REPLICATED, "token-order")}  # fmt: skip
    assert (Role.REPLICATED, "shards-complete") not in held


def test_the_order_of_tokens_is_not_asked_once_other_tokens_are_fed(tmp_path: Path) -> None:
    """Two ranks: bit equality is owed in every step, and what follows from other tokens is no disorder."""

    def disordered(step: int, site: int) -> torch.Tensor:
        rows = residual(step, site)
        return rows.flip(0) if step == 1 else rows

    probe, replicated, _ = arms(tmp_path, 2)
    write(probe, SCATTERED, disordered, result=told(2))
    asked = spec(2, True, replicated, None)
    order = [item.held for item in checked(asked, probe) if item.name == "token-order"]
    assert order == [False, None]
    written = json.loads((probe / "result.json").read_text())
    written["outputs"][1]["prompt"][0] = 99
    (probe / "result.json").write_text(json.dumps(written))
    assert [item.held for item in checked(asked, probe) if item.name == "token-order"] == [True, None]
    assert residuals(asked, probe)[1].first_divergence is not None


def test_a_probe_that_fuses_its_collectives_is_known_by_what_was_asked(tmp_path: Path) -> None:
    probe, replicated, _ = arms(tmp_path, 2)
    written = json.loads((probe / "result.json").read_text())
    for rank in written["ranks"]:
        rank["census"][0] |= {"reduce_scatter_after": 1, "all_gather_after": 1}
    (probe / "result.json").write_text(json.dumps(written))
    asked = ArmSpec(
        role=Role.PROBE, key="k", engine={"compilation_config.pass_config.fuse_gemm_comms": True},
        patches=dict.fromkeys(Patch, PatchMode.ON), env={}, batch={}, taps=True, folder=str(probe), cache_root="c",
        models_dir="m", timeout_s=1.0,
    )  # fmt: skip
    for arm_specs, held in (([], False), ([asked], True)):
        found = checked(spec(2, True, replicated, None, arms=arm_specs), probe)
        assert next(item.held for item in found if item.name == "collectives") is held


# --- what the SP pass did --------------------------------------------------------------------------------------------


def stage(before: int, rewritable: int, matched: int) -> dict[str, Any]:
    return {"applicable": True, "all_reduce_before": before, "rewritable": rewritable,
            "all_reduce_after": before - matched}  # fmt: skip


@pytest.mark.parametrize(
    ("matched", "expected", "told_of"), [([4, 4, 3, 3], 4, 4), ([4, 4, 3, 2], 3, 2), ([4, 0, 3, 2], 4, 0)]
)
def test_each_rank_is_held_to_what_its_own_stage_has(matched: list[int], expected: int, told_of: int) -> None:
    """Two stages: the last all-reduce of the first one goes to the second and not to a norm."""
    sizes = [(5, 4), (5, 4), (3, 3), (3, 3)]
    ranks = [
        {"rank": rank, "census": [stage(before, wanted, done)]}
        for rank, ((before, wanted), done) in enumerate(zip(sizes, matched, strict=True))
    ]
    found = sequence_parallelism({"ranks": ranks}, shape(pipeline_parallel_size=2))
    assert found is not None
    assert (found.expected, found.matched) == (expected, told_of)
    assert (found.per_rank, found.expected_per_rank) == (matched, [4, 4, 3, 3])
