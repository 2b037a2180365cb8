"""The timed starts of a run as its actor makes them: engines played by a script, caches by real folders."""

from __future__ import annotations

import importlib
import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from store.samples import run_spec

from workers import actor
from workers.actor import COMPARISON, Run, RunActor
from workers.protocol import (
    Artifacts,
    Check,
    CompileTimes,
    EnvironmentSpec,
    Evidence,
    Outcome,
    OutputClass,
    Role,
    RunSpec,
)
from workers.starts import median

pytestmark = pytest.mark.timeout(120)

ENGINE = """
import json, os, sys, time

spec = json.load(open(sys.argv[sys.argv.index("--request") + 1]))
pipe = os.open(os.environ["SHARDPROOF_EVENTS"], os.O_WRONLY)

def emit(kind, rank=None, **data):
    os.write(pipe, (json.dumps({"kind": kind, "t": time.monotonic(), "pid": os.getpid(), "rank": rank, **data}) + "\\n")
             .encode())

if spec["env"].get("DIE"):
    os._exit(1)
for rank in (0, 1):
    emit("rank", rank, started=time.monotonic())
root = os.environ["VLLM_CACHE_ROOT"] + "/torch_compile_cache"
key = spec["env"].get("KEY", "a")
ranks = []
for rank in (0, 1):
    folder = f"{root}/{key}/rank_{rank}_0/backbone"
    found = os.path.exists(folder)
    os.makedirs(folder, exist_ok=True)
    if not found:
        json.dump({"env": {"KEY": key, "SAME": 1}}, open(folder + "/cache_key_factors.json", "w"))
    counters = {"num_compiled_artifacts_saved": int(not found), "num_compiled_artifacts_loaded": int(found),
                "num_inductor_compiles": int(not found)}
    ranks.append({"rank": rank, "counters": counters, "peak_rss_bytes": 5, "census": [],
                  "guards": []})
answer = {"prompt": [1], "tokens": [int(spec["env"].get("TOKEN", 7))], "logprobs": [-0.5], "top": [{}]}
result = {"ranks": ranks, "outputs": [answer], "patches": {}, "environment": {
    "vllm": "0", "torch": "0", "ray": "0", "python": "3", "device": "cpu", "devices": 0, "cores": 2}}
json.dump(result, open(spec["folder"] + "/result.json", "w"))
"""


def play(
    root: Path,
    *arms: tuple[Role, int, str, dict[str, str]],
    traces: bool = False,
    environment: EnvironmentSpec | None = None,
) -> Evidence:
    """Run arms of (role, repeat, cache root, environment) and give what they left."""
    python = root / "python"
    # The script's own imports are all of the standard library.
    python.write_text(f"#!{sys.executable} -S\n{ENGINE}\n")
    python.chmod(0o755)
    spec = run_of(root, [Check.COMPILE], *arms)
    traced = [arm.model_copy(update={"traces": traces}) for arm in spec.arms]
    spec = spec.model_copy(update={"arms": traced, "environment": environment})
    *_, last = RunActor().run(spec.model_dump_json(), str(python))
    assert last["kind"] == "evidence"
    return Evidence.model_validate_json(json.dumps(last["data"]))


def run_of(root: Path, checks: list[Check], *arms: tuple[Role, int, str, dict[str, str]]) -> RunSpec:
    differing: list[dict[str, Any]] = [
        {
            "role": role,
            "env": env,
            "folder": str(root / f"{role}-{repeat}"),
            "cache_root": str(root / cache),
            "models_dir": str(root / "models"),
            "timeout_s": 60.0,
            "repeat": repeat,
        }
        for role, repeat, cache, env in arms
    ]
    spec = run_spec("run")
    specs = [spec.arms[0].model_copy(update=own) for own in differing]
    return spec.model_copy(update={"arms": specs, "checks": checks})


def cold(repeat: int = 1, cache: str = "", **env: str) -> tuple[Role, int, str, dict[str, str]]:
    return Role.COLD, repeat, cache or f"cache-{repeat}", env


def warm(repeat: int = 1, **env: str) -> tuple[Role, int, str, dict[str, str]]:
    return Role.WARM, repeat, "cache-1", env


def test_traces_are_made_of_every_arm_that_asks_however_it_ended(tmp_path: Path) -> None:
    found = play(tmp_path, cold(), warm(DIE="1"), traces=True)
    assert [report.outcome for report in found.arms] == [Outcome.OK, Outcome.CRASHED]
    for report in found.arms:
        assert report.traces is not None
        assert (report.traces.perfetto, report.traces.tlparse) == ("perfetto.json", None)
        assert report.traces.notes == ["PyTorch wrote no structured trace: nothing was compiled"]
        names = {e["args"]["name"] for e in json.loads(Path(report.folder, "perfetto.json").read_text())["traceEvents"]
                 if e["name"] == "process_name"}  # fmt: skip
        assert names == ({"rank 1"} if report.outcome is Outcome.OK else set())
    other = tmp_path / "other"
    other.mkdir()
    (report,) = play(other, cold()).arms
    assert report.traces is None
    assert not Path(report.folder, "perfetto.json").exists()


def counted(found: Evidence) -> list[tuple[Role, int, list[tuple[int, int]]]]:
    return [
        (start.role, start.repeat, [(rank.saved, rank.loaded) for rank in start.times.artifacts.ranks])
        for start in found.compile.starts
    ]


def test_every_cold_start_is_cold_and_every_warm_one_warm(tmp_path: Path) -> None:
    found = play(tmp_path, cold(1), cold(2), warm(1), warm(2))
    saved, loaded = [(1, 0)] * 2, [(0, 1)] * 2
    assert counted(found) == [
        (Role.COLD, 1, saved), (Role.COLD, 2, saved), (Role.WARM, 1, loaded), (Role.WARM, 2, loaded),
    ]  # fmt: skip
    assert [start.cache_keys for start in found.compile.starts] == [[]] * 4
    assert [start.cache_problem for start in found.compile.starts] == [None] * 4
    for shown, role in ((found.compile.cold, Role.COLD), (found.compile.warm, Role.WARM)):
        assert shown is not None
        walls = [arm.wall_s for arm in found.arms if arm.role is role]
        assert (shown.repeats, shown.min_s, shown.max_s) == (walls, min(walls), max(walls))
        assert shown.total_s == min(walls)
        assert shown.median_s == pytest.approx(sum(walls) / 2)
    assert [(arm.role, arm.repeat) for arm in found.arms] == [
        (Role.COLD, 1), (Role.COLD, 2), (Role.WARM, 1), (Role.WARM, 2),
    ]  # fmt: skip


def test_a_run_whose_environment_cannot_be_had_has_that_as_the_end_of_its_arms(tmp_path: Path) -> None:
    wanted = EnvironmentSpec(name="old", root=str(tmp_path / "environments"), interpreter=str(tmp_path / "none"))
    found = play(tmp_path, cold(), warm(), environment=wanted)
    (arm,) = found.arms
    assert (arm.role, arm.outcome) == (Role.COLD, Outcome.CRASHED)
    assert arm.failure is not None
    assert arm.failure.message == f"environment old: {tmp_path}/none cannot be started: No such file or directory"
    assert found.compile.starts == []


def test_no_cache_is_left(tmp_path: Path) -> None:
    play(tmp_path, cold(1), cold(2), warm(1), warm(2))
    assert [path.name for path in tmp_path.glob("cache-*")] == []


def test_answers_of_warm_starts_are_held_against_the_cold_one(tmp_path: Path) -> None:
    found = play(tmp_path, cold(1), cold(2, TOKEN="9"), warm(1), warm(2, TOKEN="8"))
    compared = [start.outputs for start in found.compile.starts]
    assert compared[:2] == [None, None]
    classes = [None if item is None else (item.subject, item.against, item.klass) for item in compared[2:]]
    assert classes == [(Role.WARM, Role.COLD, OutputClass.IDENTICAL), (Role.WARM, Role.COLD, OutputClass.FLIP)]


def test_a_warm_start_under_another_key_is_told_why_it_found_nothing(tmp_path: Path) -> None:
    found = play(tmp_path, cold(1), warm(1), warm(2, KEY="b"))
    _, good, bad = found.compile.starts
    assert good.cache_keys == []
    named = [[(factor.name, factor.cold, factor.warm) for factor in key.changed] for key in bad.cache_keys]
    assert named == [[("env.KEY", '"a"', '"b"')]] * 2
    assert [key.rank for key in bad.cache_keys] == [0, 1]


def test_a_start_that_dies_is_not_repeated_and_leaves_the_others(tmp_path: Path) -> None:
    found = play(tmp_path, cold(1), cold(2, DIE="1"), cold(3), warm(1))
    assert [(arm.role, arm.repeat, arm.outcome) for arm in found.arms] == [
        (Role.COLD, 1, Outcome.OK), (Role.COLD, 2, Outcome.CRASHED), (Role.WARM, 1, Outcome.OK),
    ]  # fmt: skip
    assert found.compile.cold is not None
    assert len(found.compile.cold.repeats) == 1


def test_nothing_is_loaded_from_a_first_cold_start_that_died(tmp_path: Path) -> None:
    found = play(tmp_path, cold(1, DIE="1"), cold(2), warm(1))
    assert [(arm.role, arm.repeat) for arm in found.arms] == [(Role.COLD, 1)]
    assert (found.compile.cold, found.compile.warm, found.compile.starts) == (None, None, [])


def test_a_cache_root_that_cannot_be_written_costs_its_own_arm(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = play(tmp_path, cold(1), cold(2, cache="file/cache"), warm(1), (Role.PROBE, 1, "probe-cache", {}))
    lost = found.arms[1]
    assert (lost.role, lost.repeat, lost.outcome) == (Role.COLD, 2, Outcome.CRASHED)
    assert lost.failure is not None
    assert lost.failure.message == f"the cache root {tmp_path}/file/cache cannot be written: Not a directory"
    assert [arm.outcome for arm in found.arms] == [Outcome.OK, Outcome.CRASHED, Outcome.OK, Outcome.OK]
    assert found.compile.warm is not None


def times(total: float) -> CompileTimes:
    return CompileTimes(total_s=total, ranks=[], artifacts=Artifacts(saved=0, loaded=0, ranks=[]))


@pytest.mark.parametrize(
    ("totals", "shown", "middle"),
    [([3.0], 3.0, 3.0), ([9.0, 2.0, 5.0], 5.0, 5.0), ([4.0, 1.0, 2.0, 9.0], 2.0, 3.0), ([1.0, 1.0], 1.0, 1.0)],
)
def test_the_start_shown_is_one_that_was_measured(totals: list[float], shown: float, middle: float) -> None:
    found = median([times(total) for total in totals])
    assert found is not None
    assert (found.total_s, found.median_s, found.repeats) == (shown, middle, totals)
    assert (found.min_s, found.max_s) == (min(totals), max(totals))


def test_no_start_has_no_median() -> None:
    assert median([]) is None


def test_old_evidence_is_still_read() -> None:
    """It was stored when there was one start of each kind."""
    plain: dict[str, Any] = {"total_s": 1.0, "ranks": [], "artifacts": {"saved": 0, "loaded": 0, "ranks": []}}
    assert CompileTimes.model_validate(plain).repeats == []


@pytest.mark.parametrize(
    ("checks", "role", "ready"),
    [
        ([Check.COMPILE, Check.RESIDUAL], Role.PROBE, [COMPARISON]),
        ([Check.COMPILE, Check.RESIDUAL], Role.COLD, []),
        ([Check.COMPILE, Check.RESIDUAL], Role.WARM, []),
        ([Check.COMPILE, Check.OUTPUTS], Role.PROBE, []),
    ],
)
def test_what_compares_is_imported_while_an_engine_starts_that_nobody_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checks: list[Check], role: Role, ready: list[str]
) -> None:
    """And where nothing is compared it is not."""

    class AtOnce(threading.Thread):
        def start(self) -> None:
            self.run()

    imported: list[str] = []
    monkeypatch.setattr(actor.threading, "Thread", AtOnce)
    monkeypatch.setattr(actor.importlib, "import_module", imported.append)
    spec = run_of(tmp_path, checks, (role, 1, "cache", {}))
    Run(spec, sys.executable)._get_ready(spec.arms[0])
    assert imported == ready


def test_it_is_what_compares() -> None:
    assert hasattr(importlib.import_module(COMPARISON), "examine")
