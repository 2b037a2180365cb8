"""The whole path on a real engine: the quickstart matrix, as ``make demo`` runs it."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from starlette.testclient import TestClient

from e2e.command import Finished, Leftovers
from service.app import create_app
from service.dispatch.controller import Controller
from service.settings import Settings
from service.store import open_store
from workers.protocol import INVARIANTS

pytestmark = pytest.mark.engine

SITES = 5
"""Two layers: the embedding, and after attention and MLP of each."""
TP = 2


def test_every_cell_is_what_was_expected_of_it(demo: Finished) -> None:
    assert demo.report is not None, demo.printed
    verdicts = {cell["name"]: (cell["verdict"], cell["ok"]) for cell in demo.report["cells"]}
    assert verdicts == {
        "replicated": ("pass", True),
        "sp-full-graph": ("pass", True),
        "sp-piecewise-asked": ("downgraded", True),
        "sp-guard-removed": ("fail-residual", True),
    }, demo.printed
    assert demo.status == 0
    assert "4 of 4 cells ok" in demo.printed


def test_the_pass_rewrote_everything_on_both_ranks(demo: Finished) -> None:
    found = demo.cell("sp-full-graph")["exercised"]["sequence_parallelism"]
    each = [SITES] * TP
    assert found == {"expected": SITES, "matched": SITES, "per_rank": each, "expected_per_rank": each}
    assert demo.cell("replicated")["exercised"]["sequence_parallelism"] is None


def test_shards_are_the_replicated_residual_bit_for_bit(demo: Finished) -> None:
    residual = demo.cell("sp-full-graph")["residual"]
    assert (residual["subject"], residual["against"]) == ("probe", "replicated")
    assert residual["bitwise_equal"] is True
    assert (residual["sites"], residual["ranks"], residual["first_divergence"]) == (SITES, TP, None)
    compared = _compared(residual, "probe", "replicated")
    assert compared["missing"] == []
    assert compared["elements"] == compared["tokens"] * SITES * 128
    assert compared["tokens"] > 40


def test_replicas_agree_and_stay_near_the_reference(demo: Finished) -> None:
    residual = demo.cell("replicated")["residual"]
    assert residual["against"] == "reference"
    compared = _compared(residual, "probe", "reference")
    assert compared["replicas_equal"] is True
    assert compared["bitwise_equal"] is False
    assert 0 < residual["worst_score"] <= 3


def _compared(residual: dict[str, Any], subject: str, against: str) -> dict[str, Any]:
    found = [item for item in residual["comparisons"] if (item["subject"], item["against"]) == (subject, against)]
    assert len(found) == 1
    return found[0]


def test_the_replicated_arm_is_the_same_when_it_is_run_twice(demo: Finished) -> None:
    for name in ("replicated", "sp-full-graph", "sp-guard-removed"):
        twice = _compared(demo.cell(name)["residual"], "replicated", "replicated")
        assert (twice["bitwise_equal"], twice["missing"], twice["steps_left_out"]) == (True, [], 0)


def test_invariants_hold_in_a_healthy_engine_and_are_looked_at(demo: Finished) -> None:
    found = {item["name"]: item for item in demo.cell("sp-full-graph")["invariants"] if item["arm"] == "probe"}
    assert [item["detail"] for item in found.values() if item["held"] is False] == []
    looked_at = {name for name, item in found.items() if item["held"]}
    # One stage, and a threshold of one token: nothing crosses, nothing is replicated.
    assert looked_at == set(INVARIANTS) - {"replicas-equal", "below-threshold-replicated", "boundary"}


def test_each_rank_computes_on_the_cores_that_vllm_gave_it(demo: Finished) -> None:
    """Forked ranks too: OpenMP had read its settings before they were forked."""
    cores = sorted(os.sched_getaffinity(0))
    for role in ("cold", "warm", "probe"):
        ranks = json.loads((demo.arm_folder("sp-full-graph", role) / "result.json").read_text())["ranks"]
        assert [rank["cores"] for rank in ranks] == [cores[rank::TP] or [cores[0]] for rank in range(TP)]
        assert [rank["threads"] for rank in ranks] == [len(rank["cores"]) for rank in ranks]


def test_the_reference_compiled_nothing(demo: Finished) -> None:
    """Not even the functions that vLLM compiles beside the model; the arms that it judges did."""
    found = {}
    for path in (demo.home / "artifacts").glob("*/arms/*/spec.json"):
        ranks = json.loads(path.with_name("result.json").read_text())["ranks"]
        found[json.loads(path.read_text())["role"]] = {kind for rank in ranks for kind in rank["compiled"]}
    assert found["reference"] == set()
    assert "kernels in Python" in found["replicated"]


def test_outputs_are_identical_to_both_controls(demo: Finished) -> None:
    for name in ("replicated", "sp-full-graph"):
        outputs = demo.cell(name)["outputs"]
        assert outputs["class"] == "identical"
        against = {item["against"]: item["class"] for item in outputs["comparisons"]}
        assert against["reference"] == "identical"
    assert "replicated" in {item["against"] for item in demo.cell("sp-full-graph")["outputs"]["comparisons"]}


def test_tokens_are_those_of_transformers_on_the_same_weights(demo: Finished) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    (model,) = (demo.home / "models").iterdir()
    network: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    answers = json.loads((demo.arm_folder("sp-full-graph", "probe") / "result.json").read_text())["outputs"]
    assert {len(answer["prompt"]) for answer in answers} >= {1, 2, 3, 508}, "from one token to as many as there can be"
    for answer in answers:
        tokens, logprobs = _greedy(network, answer["prompt"], answer["tokens"])
        assert answer["tokens"] == tokens
        assert answer["logprobs"] == pytest.approx(logprobs, abs=1e-5)


def _greedy(network: Any, prompt: list[int], answer: list[int]) -> tuple[list[int], list[float]]:
    """What is most likely at each place of ``answer``, after the prompt and the answer up to there."""
    import torch

    with torch.no_grad():
        scores = network(torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
    best = scores.max(dim=-1)
    return best.indices.tolist(), best.values.tolist()


def test_the_missing_guard_is_found_and_placed(demo: Finished) -> None:
    cell = demo.cell("sp-guard-removed")
    found = cell["residual"]["first_divergence"]
    # The first boundary between subgraphs lies behind the first attention.
    assert found["site"] == "0.attn"
    assert found["rank"] in range(TP)
    assert found["site"] in cell["reasons"][0]
    assert f"rank {found['rank']}" in cell["reasons"][0]
    assert cell["environment"]["patches"]["full_graph_sp"] == "removed"


def test_guards_hold_where_they_are_and_are_seen_gone_where_not(demo: Finished) -> None:
    held = {guard["name"]: guard["held"] for guard in demo.cell("sp-full-graph")["guards"]}
    assert held["config-rule"] is held["sp-pass"] is held["runner-helper"] is True
    gone = {guard["name"]: guard["held"] for guard in demo.cell("sp-guard-removed")["guards"]}
    assert gone["config-rule"] is gone["sp-pass"] is gone["runner-helper"] is False


def test_a_piecewise_request_is_shown_as_what_ran(demo: Finished) -> None:
    cell, full = demo.cell("sp-piecewise-asked"), demo.cell("sp-full-graph")
    assert cell["duplicate_of"] == full["id"]
    assert cell["effective"] == full["effective"]
    assert cell["compile"] == full["compile"]
    (change,) = [change for change in cell["changes"] if change["written"]]
    assert change["key"] == "compilation_config.splitting_ops"
    assert change["effective"] == []
    assert "full-graph compilation" in change["reason"]


@pytest.mark.parametrize("name", ["replicated", "sp-full-graph"])
def test_cold_and_warm_are_proven_on_every_rank(demo: Finished, name: str) -> None:
    times = demo.cell(name)["compile"]
    for rank in times["cold"]["artifacts"]["ranks"]:
        if name == "sp-full-graph":
            assert (rank["saved"], rank["loaded"], rank["compiled"]) == (1, 0, 1)
        assert rank["saved"] > 0
        assert rank["loaded"] == 0
        assert rank["compiled"] > 0
    for rank in times["warm"]["artifacts"]["ranks"]:
        assert rank["saved"] == rank["compiled"] == 0
        assert rank["loaded"] > 0
    assert [rank["rank"] for rank in times["warm"]["artifacts"]["ranks"]] == [0, 1]


@pytest.mark.parametrize("kind", ["cold", "warm"])
def test_phases_and_rest_make_the_outer_wall_time(demo: Finished, kind: str) -> None:
    cell = demo.cell("sp-full-graph")
    times = cell["compile"][kind]
    (arm,) = [arm for arm in cell["arms"] if arm["role"] == kind]
    assert times["total_s"] == arm["wall_s"]
    assert [rank["rank"] for rank in times["ranks"]] == [0, 1]
    for rank in times["ranks"]:
        explained = sum(phase["s"] for phase in rank["phases"])
        assert explained + rank["unaccounted_s"] == pytest.approx(times["total_s"], rel=0.02)
        assert rank["unaccounted_s"] >= 0
        assert rank["unaccounted_s"] / times["total_s"] <= 0.02
        names = {phase["name"] for phase in rank["phases"]}
        assert {"launch", "import", "config", "rank_import", "init_device", "load_model", "weights", "profile"} <= names
        assert {"kv_cache", "wait", "first_token", "requests", "collect", "exit"} <= names
        assert ("inductor_codegen" in names) == (kind == "cold")
        assert {"dynamo", "aot_autograd"} <= names


COMPILED = {"vllm_backend", "inductor_passes", "vllm_passes", "inductor_lowering", "inductor_scheduling",
            "inductor_codegen", "inductor_compile", "cache_save"}  # fmt: skip


def test_cold_compiles_on_both_ranks_and_warm_loads(demo: Finished) -> None:
    times = demo.cell("sp-full-graph")["compile"]
    for cold, warm in zip(times["cold"]["ranks"], times["warm"]["ranks"], strict=True):
        assert {phase["name"] for phase in cold["phases"]} >= COMPILED
        spent = {phase["name"]: phase["s"] for phase in warm["phases"]}
        assert spent.keys() & COMPILED <= {"inductor_compile"}, "what is loaded may still need a header compiled"
        assert spent["cache_load"] > 0
        passes = {part["name"]: part["calls"] for part in cold["passes"]}
        assert passes["pass.vllm.SequenceParallelismPass"] == passes["pass.shardproof.CountAfter"] == 1
        assert all(part["s"] > 0 for part in cold["passes"])
        assert [part["calls"] for part in cold["ranges"]] == [1]
        assert (warm["passes"], warm["ranges"]) == ([], [])


@pytest.mark.parametrize("kind", ["cold", "warm"])
def test_spans_of_every_process_lie_inside_the_wall_time(demo: Finished, kind: str) -> None:
    times = demo.cell("sp-full-graph")["compile"][kind]
    assert [process["rank"] for process in times["processes"][:3]] == [None, 0, 1]
    for process in times["processes"][:3]:
        assert (process["problems"], process["not_timed"]) == ([], [])
        assert process["spans"]
        for span in process["spans"]:
            assert 0 <= span["begin"] <= (times["total_s"] if span["end"] is None else span["end"]) <= times["total_s"]
    main = {span["name"] for span in times["processes"][0]["spans"]}
    assert main >= {"engine", "engine_core", "executor", "kv_setup"}
    assert all(0 < process["started"] < times["total_s"] for process in times["processes"][1:3])


def test_what_a_start_used_is_told_per_rank(demo: Finished) -> None:
    for name in ("sp-full-graph", "replicated"):
        times = demo.cell(name)["compile"]
        for kind in ("cold", "warm"):
            for used in times[kind]["resources"]:
                assert used["peak_rss_bytes"] > 1 << 28
                assert used["device_peak_bytes"] is None
                assert 0 < used["artifact_bytes"] < times[kind]["artifact_bytes"]
            assert 0 < times[kind]["time_to_first_token_s"] < times[kind]["first_token_s"] < times[kind]["total_s"]
        assert times["cold"]["kv_blocks"] == times["warm"]["kv_blocks"] > 0
        for used in times["cold"]["resources"]:
            assert 1 <= used["unique_subgraphs"] <= used["subgraphs"]
            assert used["pieces"] == used["subgraphs"]
            assert (used["subgraphs"] == 1) == (name == "sp-full-graph")
        assert {used["subgraphs"] for used in times["warm"]["resources"]} == {None}


def test_skew_names_the_slowest_rank_of_each_phase(demo: Finished) -> None:
    times = demo.cell("sp-full-graph")["compile"]["cold"]
    spent = [{phase["name"]: phase["s"] for phase in rank["phases"]} for rank in times["ranks"]]
    assert {item["phase"] for item in times["skew"]} == spent[0].keys() | spent[1].keys()
    for item in times["skew"]:
        slow, fast = (spent[rank].get(item["phase"], 0.0) for rank in (item["slowest"], 1 - item["slowest"]))
        assert (item["s"], item["behind_s"]) == (slow, slow - fast)
    assert [item["behind_s"] for item in times["skew"]] == sorted((i["behind_s"] for i in times["skew"]), reverse=True)


def test_fallbacks_are_counted_on_every_rank_of_every_arm(demo: Finished) -> None:
    found = demo.cell("sp-full-graph")["fallback"]
    arms = {arm["arm"]: arm["ranks"] for arm in found["arms"]}
    assert arms.keys() == {"cold", "warm", "probe", "replicated", "reference"}
    assert {rank["reason"] for ranks in arms.values() for rank in ranks} == {None}
    # vLLM's operations go past the log line; a CPU kernel of another namespace does not.
    assert [[op["op"] for op in rank["ops"]] for rank in arms["cold"]] == [["_C::onednn_mm"]] * TP
    assert [rank["fast_calls"] > 1 for rank in arms["cold"]] == [True] * TP
    assert (found["arm"], found["state"], found["calls"]) == ("cold", "native", TP)
    assert found["fast_calls"] == sum(rank["fast_calls"] for rank in arms["cold"])
    assert [(rank["calls"], rank["fast_calls"]) for rank in arms["warm"]] == [(0, 0)] * TP
    # Nobody reads that log here, and this PyTorch makes the text where it is read.
    assert (found["eager"], found["characters"], found["slow_path_s"]) == (False, 0, 0.0)


def test_nothing_of_it_is_left_on_the_machine(quickstart: tuple[Finished, Leftovers, Leftovers]) -> None:
    _, before, after = quickstart
    assert after.processes <= before.processes
    assert after.files <= before.files


def test_compile_caches_are_not_kept(demo: Finished) -> None:
    assert not list(demo.home.glob("artifacts/**/torch_compile_cache"))


def test_the_page_on_disk_says_the_same(demo: Finished) -> None:
    assert demo.report is not None
    page = (demo.home / "reports" / f"{demo.report['sweep']['id']}.html").read_text()
    for cell in demo.report["cells"]:
        assert cell["name"] in page
        assert cell["verdict"] in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_store_and_api_give_the_same_report(demo: Finished) -> None:
    assert demo.report is not None
    settings = Settings(home=demo.home)
    store = open_store(settings.store_url)
    try:
        client = TestClient(create_app(settings, store, Controller(settings, store)))
        sweep = demo.report["sweep"]["id"]
        served: dict[str, Any] = client.get(f"/v1/sweeps/{sweep}/report").json()
        assert served["summary"] == demo.report["summary"]
        for ours, theirs in zip(demo.report["cells"], served["cells"], strict=True):
            assert {**ours, "reproduce": None} == {**theirs, "reproduce": None}
        assert "sp-guard-removed" in client.get(f"/sweeps/{sweep}").text
    finally:
        store.close()
