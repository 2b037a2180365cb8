"""An engine whose own full-graph rule and fast path were taken away, with ours in their place: nothing else changes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from e2e.command import Finished
from e2e.injected import python_path
from service.settings import Settings
from service.store import open_store, repositories
from workers import environment
from workers.actor import RunActor
from workers.protocol import (
    ArmSpec,
    AuditCell,
    AuditedCell,
    AuditReply,
    AuditRequest,
    Check,
    Evidence,
    Patch,
    PatchMode,
    PatchState,
    Role,
    RunSpec,
)

pytestmark = pytest.mark.engine

REVERT = '''
def revert(patches):
    """Before anything is asked of the patches: as a version from before both changes is found."""
    from workers.patches import fallback_fast_path, full_graph_sp
    from workers.protocol import Patch, PatchMode

    patches.establish(dict.fromkeys(Patch, PatchMode.OFF))
    full_graph_sp._undo.clear()
    fallback_fast_path._found.clear()


after_import("workers.patches", revert)
'''
ATTENTION_OP = "vllm::unified_attention_with_output"
APPLIED = dict.fromkeys(Patch, PatchState.APPLIED)


@dataclass(frozen=True)
class Patched:
    """``native``: the specification of the demo's own probe. ``env``: what takes the engine's own patches away."""

    native: ArmSpec
    env: dict[str, str]
    evidence: Evidence
    result: dict[str, Any]

    def of_native(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((Path(self.native.folder) / "result.json").read_text())
        return found


@pytest.fixture(scope="module")
def patched(demo: Finished, tmp_path_factory: pytest.TempPathFactory) -> Patched:
    """The demo's probe once more, asked to split the graph and without the engine's own patches. One start."""
    root: Path = tmp_path_factory.mktemp("patched")
    spec = _run_of(demo, "sp-full-graph")
    (native,) = [arm for arm in spec.arms if arm.role is Role.PROBE]
    split = demo.cell("sp-piecewise-asked")["requested"]
    env = {"PYTHONPATH": python_path(root / "site", REVERT)}
    places = {"folder": str(root / "probe"), "cache_root": str(root / "cache")}
    arm = native.model_copy(update={"engine": native.engine | split, "env": env, **places})
    run = spec.model_copy(update={"arms": [arm], "checks": [Check.RESIDUAL, Check.OUTPUTS]})
    *_, last = RunActor().run(run.model_dump_json(), sys.executable)
    evidence = Evidence.model_validate(last["data"])
    assert [arm.failure for arm in evidence.arms] == [None]
    return Patched(native, env, evidence, json.loads((root / "probe" / "result.json").read_text()))


def _run_of(demo: Finished, name: str) -> RunSpec:
    assert demo.report is not None
    store = open_store(Settings(home=demo.home).store_url)
    try:
        with store.reading() as session:
            runs = repositories.latest_runs(session, demo.report["sweep"]["id"])
    finally:
        store.close()
    return next(run.spec for run in runs if run.cell_id == demo.cell(name)["id"])


@pytest.fixture(scope="module")
def audited(demo: Finished, patched: Patched, tmp_path_factory: pytest.TempPathFactory) -> dict[PatchMode, AuditedCell]:
    """What the same settings resolve to without the engine's own patches: with ours, and left as found."""
    folder: Path = tmp_path_factory.mktemp("audited")
    engine = patched.native.engine | demo.cell("sp-piecewise-asked")["requested"]
    asked = (PatchMode.ON, PatchMode.NATIVE)
    cells = [AuditCell(id=mode, engine=engine, patches=dict.fromkeys(Patch, mode)) for mode in asked]
    request = AuditRequest(cells=cells, models_dir=patched.native.models_dir)
    (folder / "request.json").write_text(request.model_dump_json())
    files = ["--request", str(folder / "request.json"), "--reply", str(folder / "reply.json")]
    environ = environment.for_question(str(folder / "cache")) | patched.env
    subprocess.run([sys.executable, "-m", "workers.engine", "audit", *files], env=environ, check=True)
    reply = AuditReply.model_validate_json((folder / "reply.json").read_bytes())
    return dict(zip(asked, reply.cells, strict=True))


def test_without_ours_there_is_none(audited: dict[PatchMode, AuditedCell]) -> None:
    """The control: what the other tests see is not the engine's own."""
    found = audited[PatchMode.NATIVE]
    assert found.patches == dict.fromkeys(Patch, PatchState.ABSENT)
    assert found.effective is not None
    assert found.effective["compilation_config.splitting_ops"] == [ATTENTION_OP], "the graph stays split"


def test_ours_are_found_missing_and_put_on_in_every_process(patched: Patched) -> None:
    assert patched.evidence.patches == APPLIED
    assert set(patched.of_native()["patches"].values()) == {"native"}
    for rank in patched.result["ranks"]:
        held = {guard["name"]: guard["held"] for guard in rank["guards"]}
        assert held["config-rule"] is held["sp-pass"] is held["runner-helper"] is True


def test_the_configuration_is_the_native_one(audited: dict[PatchMode, AuditedCell], demo: Finished) -> None:
    ours = audited[PatchMode.ON]
    assert ours.patches == APPLIED
    assert ours.effective == demo.cell("sp-piecewise-asked")["effective"]
    (change,) = [change for change in ours.changes if change.written]
    assert (change.key, change.effective) == ("compilation_config.splitting_ops", [])
    assert "needs the full graph" in str(change.reason), "our own words"


def test_the_pass_matches_what_it_matches_natively(patched: Patched) -> None:
    ours, native = ([rank["census"] for rank in found["ranks"]] for found in (patched.result, patched.of_native()))
    assert ours == native
    assert patched.evidence.exercised.sequence_parallelism is not None
    assert patched.evidence.exercised.sequence_parallelism.per_rank == [5, 5]


def test_the_residual_is_the_native_one_to_the_bit(patched: Patched) -> None:
    found = {(item.subject, item.against): item for item in patched.evidence.residual}
    compared = found[Role.PROBE, Role.REPLICATED]
    assert (compared.bitwise_equal, compared.missing, compared.sites) == (True, [], 5)
    assert compared.tokens > 40


def test_tokens_and_their_probabilities_are_the_native_ones(patched: Patched) -> None:
    assert patched.result["outputs"] == patched.of_native()["outputs"]
    assert len(patched.result["outputs"]) > 4


def test_operations_go_past_the_log_line_as_they_do_natively(patched: Patched) -> None:
    ours, native = ([rank["fallback"] for rank in found["ranks"]] for found in (patched.result, patched.of_native()))
    assert ours == native
    for rank in ours:
        assert (rank["reason"], rank["fast_calls"] > 3) == (None, True)
        assert [op["op"] for op in rank["ops"] if op["op"].startswith("vllm")] == []
