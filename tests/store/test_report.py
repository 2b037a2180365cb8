from __future__ import annotations

import json
import math
import shlex
from dataclasses import replace
from typing import Any

from service.domain.lifecycle import State
from service.domain.verdict import Verdict
from service.report import SCHEMA, stored_report
from service.store import Store, repositories
from store.samples import (
    ENVIRONMENT,
    SWEEP,
    add_sweep,
    arm_report,
    audited,
    cell,
    divergence,
    evidence,
    finish,
    output,
    residual,
    sweep,
)
from workers.protocol import Failure, Outcome, OutputClass, Role

CELL_KEYS = {
    "id", "name", "requested", "effective", "changes", "expect", "verdict", "ok", "reasons", "duplicate_of",
    "exercised", "compile", "fallback", "residual", "outputs", "guards", "accuracy", "environment", "reproduce",
    "state", "arms", "invariants",
}  # fmt: skip


def report_of(store: Store) -> dict[str, Any]:
    with store.reading() as session:
        report = stored_report(session, SWEEP)
    # Plain JSON, and none of the words that only Python reads.
    json.dumps(report, allow_nan=False)
    return report


def reported(store: Store, **fields: Any) -> dict[str, Any]:
    """The one cell of a sweep that found out ``fields``."""
    add_sweep(store, cells=1)
    finish(store, "c0", evidence(**fields))
    found: dict[str, Any] = report_of(store)["cells"][0]
    return found


def test_a_finished_cell_has_every_key_of_the_format(store: Store) -> None:
    add_sweep(store, cells=1)
    with store.transaction() as session:
        repositories.record_audit(session, SWEEP, "c0", audited("c0"), "print")
    finish(store, "c0", evidence())
    report = report_of(store)
    assert report["schema"] == SCHEMA == "shardproof.report/1"
    assert report["sweep"].keys() >= {"id", "name", "created_at", "matrix"}
    assert report["summary"] == {"cells": 1, "ok": 1, "unexpected": 0, "by_verdict": {"pass": 1}}
    (found,) = report["cells"]
    assert found.keys() >= CELL_KEYS
    assert found["changes"][0].keys() >= {"key", "requested", "effective", "reason"}
    assert found["exercised"]["sequence_parallelism"] == {
        "expected": 5, "matched": 5, "per_rank": [5, 5], "expected_per_rank": [5, 5],
    }  # fmt: skip
    for arm in ("cold", "warm"):
        times = found["compile"][arm]
        assert times.keys() >= {"total_s", "ranks", "artifacts"}
        assert times["ranks"][0].keys() == {"rank", "total_s", "phases", "unaccounted_s", "passes", "ranges"}
        assert times["ranks"][0]["phases"][0] == {"name": "dynamo", "s": 1.5, "begin": None}
        assert times["artifacts"].keys() >= {"saved", "loaded"}
    told = {"calls": 12, "slow_path_s": 0.0, "state": "applied"}
    not_looked_at = dict.fromkeys(("fast_calls", "characters", "eager", "arm", "reason"))
    assert found["fallback"] == told | not_looked_at | {"arms": []}
    assert found["residual"].keys() >= {"sites", "ranks", "bitwise_equal", "worst_score", "first_divergence"}
    assert found["outputs"].keys() >= {"class", "first_difference"}
    assert found["guards"][0].keys() == {"name", "held", "detail"}
    invariant = {"name": "token-order", "held": True, "checked": 9, "detail": "9 compared", "arm": "probe"}
    assert found["invariants"] == [invariant]
    assert found["environment"].keys() >= {"vllm", "torch", "ray", "python", "device", "patches"}
    assert found["environment"]["patches"] == {"full_graph_sp": "native"}
    assert (found["expect"], found["verdict"], found["ok"], found["state"]) == (["pass"], "pass", True, "finished")


def test_what_was_not_looked_at_is_null(store: Store) -> None:
    add_sweep(store, cells=1)
    (found,) = report_of(store)["cells"]
    assert found.keys() >= CELL_KEYS
    assert found["compile"] == {"cold": None, "warm": None}
    assert found["exercised"] == {"sequence_parallelism": None}
    for key in ("effective", "verdict", "ok", "duplicate_of", "fallback", "residual", "outputs", "failure"):
        assert found[key] is None, key
    assert found["environment"]["vllm"] is None


def test_an_audited_cell_names_where_it_was_audited(store: Store) -> None:
    add_sweep(store, cells=1)
    with store.transaction() as session:
        repositories.set_sweep_environment(session, SWEEP, ENVIRONMENT)
        repositories.record_audit(session, SWEEP, "c0", audited("c0"), None)
    (found,) = report_of(store)["cells"]
    assert found["environment"]["vllm"] == "0.31.0"
    assert found["environment"]["patches"] == {"full_graph_sp": "native", "fallback_fast_path": "applied"}


def test_each_cell_names_the_environment_that_it_ran_in(store: Store) -> None:
    add_sweep(store, cells=2)
    older = ENVIRONMENT.model_copy(update={"vllm": "0.30.0", "address": "a1"})
    with store.transaction() as session:
        repositories.set_sweep_environment(session, SWEEP, ENVIRONMENT)
        repositories.record_audit(session, SWEEP, "c0", audited("c0"), None, ENVIRONMENT)
        repositories.record_audit(session, SWEEP, "c1", audited("c1"), None, older)
    places = [cell["environment"] for cell in report_of(store)["cells"]]
    assert [(place["vllm"], place["address"]) for place in places] == [("0.31.0", None), ("0.30.0", "a1")]
    assert [place["name"] for place in places] == ["default", "default"]


def test_a_cell_whose_environment_could_not_be_had_does_not_name_another(store: Store) -> None:
    with store.transaction() as session:
        lost = replace(cell("c0"), requested={"environment": "old"})
        repositories.create_sweep(session, sweep(SWEEP), [lost])
        repositories.set_sweep_environment(session, SWEEP, ENVIRONMENT)
        repositories.record_audit(session, SWEEP, "c0", audited("c0"), None, None)
    (found,) = report_of(store)["cells"]
    assert (found["environment"]["name"], found["environment"]["vllm"]) == ("old", None)


def test_a_residual_that_diverges_stands_for_all(store: Store) -> None:
    broken = residual(Role.REFERENCE, bitwise_equal=False, worst_score=41.5, first_divergence=divergence())
    found = reported(store, residual=[residual(), broken])["residual"]
    assert (found["against"], found["worst_score"]) == ("reference", 41.5)
    assert found["first_divergence"].items() >= {"site": "layers.1.mlp", "rank": 1, "pattern": "shifted"}.items()
    assert [item["against"] for item in found["comparisons"]] == ["replicated", "reference"]


def test_the_replicated_arm_comes_before_the_reference(store: Store) -> None:
    found = reported(store, residual=[residual(Role.REFERENCE, worst_score=0.9), residual()])["residual"]
    assert (found["against"], found["bitwise_equal"], found["worst_score"]) == ("replicated", True, 0.0)


def test_a_score_that_is_no_number_is_named(store: Store) -> None:
    scores = [residual(worst_score=score) for score in (math.nan, None)]
    found = reported(store, residual=scores)["residual"]
    assert [item["worst_score"] for item in found["comparisons"]] == ["NaN", None]


def test_outputs_are_those_against_the_replicated_arm(store: Store) -> None:
    compared = [output(Role.REFERENCE, OutputClass.DRIFT), output(Role.REPLICATED, OutputClass.FLIP)]
    found = reported(store, outputs=compared)["outputs"]
    assert (found["class"], found["first_difference"]["position"]) == ("flip", 2)
    assert [item["class"] for item in found["comparisons"]] == ["drift", "flip"]
    assert all("klass" not in item for item in (found, *found["comparisons"]))


def test_outputs_fall_back_to_the_reference(store: Store) -> None:
    assert reported(store, outputs=[output(Role.REFERENCE, OutputClass.DRIFT)])["outputs"]["class"] == "drift"


def test_outputs_without_a_class_have_a_problem(store: Store) -> None:
    found = reported(store, outputs=[output(Role.REPLICATED, None, "the arm has no outputs")])["outputs"]
    assert (found["class"], found["problem"], found["first_difference"]) == (None, "the arm has no outputs", None)


def test_arms_say_how_they_died(store: Store) -> None:
    failure = Failure(phase="dynamo", rank=1, message="assert failed", log_tail=["a", "b"])
    cold, warm = reported(store, arms=[arm_report(Role.COLD), arm_report(Role.WARM, Outcome.CRASHED, failure)])["arms"]
    assert (cold["role"], cold["outcome"], cold["wall_s"], cold["failure"]) == ("cold", "ok", 12.5, None)
    assert warm["outcome"] == "crashed"
    assert warm["failure"]["log_tail"] == ["a", "b"]


def test_a_duplicate_shows_the_evidence_of_its_original(store: Store) -> None:
    add_sweep(store)
    finish(store, "c0", evidence())
    with store.transaction() as session:
        repositories.set_duplicate(session, SWEEP, "c1", "c0")
        repositories.set_cell_state(session, SWEEP, "c1", State.QUEUED)
        repositories.conclude_cell(session, SWEEP, "c1", Verdict.DUPLICATE, False, ["same as c0"], State.FINISHED)
    report = report_of(store)
    original, duplicate = report["cells"]
    assert duplicate["compile"] == original["compile"] != {"cold": None, "warm": None}
    assert (duplicate["duplicate_of"], duplicate["verdict"], duplicate["reasons"]) == (
        "c0",
        "duplicate",
        ["same as c0"],
    )
    assert report["summary"] == {"cells": 2, "ok": 1, "unexpected": 1, "by_verdict": {"duplicate": 1, "pass": 1}}


def test_the_command_line_that_reproduces_survives_a_shell(store: Store) -> None:
    name = "tp=2; rm -rf '$HOME'"
    with store.transaction() as session:
        repositories.create_sweep(session, sweep(), [cell("c0", name)])
    with store.reading() as session:
        (found,) = stored_report(session, SWEEP, "my matrix.yaml")["cells"]
    assert shlex.split(found["reproduce"]) == ["shardproof", "run", "my matrix.yaml", "--cell", name]


def test_files_that_were_removed_are_not_pointed_at(store: Store) -> None:
    stacks = f"/home/artifacts/{SWEEP}/cells/c0/run/cold/stacks.txt"
    failure = Failure(phase="profile", rank=1, message="it hung", log_tail=["last"], stacks=stacks)
    hung = arm_report(Role.COLD).model_copy(update={"outcome": Outcome.TIMED_OUT, "failure": failure})
    add_sweep(store, cells=2)
    finish(store, "c0", evidence(arms=[hung]), reason=f"timed-out: it hung. Stacks: {stacks}.")
    finish(store, "c1", evidence(arms=[hung]), "run-2", reason="timed-out: it hung")
    before = report_of(store)
    with store.transaction() as session:
        repositories.note_artifacts_removed(session, SWEEP, 1796000000.0)
    after = report_of(store)
    assert before["sweep"]["artifacts_removed_at"] is None
    assert after["sweep"]["artifacts_removed_at"] == "2026-11-30T00:53:20+00:00"
    first, second = after["cells"]
    assert first["arms"][0]["failure"] == {**before["cells"][0]["arms"][0]["failure"], "stacks": None}
    assert [text.partition(" ")[0] for text in first["reasons"]] == ["timed-out:", "note:"]
    assert "removed at 2026-11-30T00:53:20+00:00" in first["reasons"][1]
    assert second["reasons"] == before["cells"][1]["reasons"]


def test_a_secret_that_a_matrix_set_is_not_shown(store: Store) -> None:
    new = replace(sweep(), matrix={"name": "x", "engine": {"hf_token": "hf_abc", "env": {"MY_PASSWORD": "abc"}}})
    requested = {"hf_token": "hf_abc", "env.MY_PASSWORD": "abc", "seed": 1}
    with store.transaction() as session:
        repositories.create_sweep(session, new, [replace(cell("c0"), requested=requested)])
    with store.reading() as session:
        text = json.dumps(stored_report(session, SWEEP))
    assert "abc" not in text.replace("ab12cd", "")
    assert text.count("(secret)") == 4
    assert '"seed": 1' in text
