"""``shardproof bench startup``: how both commands are started and read. No engine is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from service import startup
from service.domain.startup import NotMeasured
from service.settings import Settings
from workers import environment
from workers.bench.counted import CountedWorker

RESULTS = {
    "avg_cold_startup_time": 30.0,
    "avg_cold_compilation_time": 20.0,
    "avg_warm_startup_time": 10.0,
    "avg_warm_compilation_time": 1.5,
}
LINES = [
    (8.0, "Measuring cold startup time...\n"),
    (20.0, "INFO Warming up model for the compilation...\n"),
    (50.0, "Warming up for warm startup measurement...\n"),
    (80.0, "Measuring warm startup time...\n"),
    (95.0, "STARTUP TIME BENCHMARK RESULTS\n"),
]
TOLD = [{"start": start, "rank": rank, "counters": {"n": start}} for start in (31, 17, 23) for rank in (1, 0)]


def test_the_peer_s_starts_are_told_apart() -> None:
    """By what it prints and by the processes of its engines, in the order in which it made them."""
    found = list(startup.peer_starts(LINES, RESULTS, TOLD))
    assert [(start.kind, start.wall_s, start.startup_s, start.compile_s) for start in found] == [
        ("cold", 42.0, 30.0, 20.0),
        ("warm-up", 30.0, None, None),
        ("warm", 15.0, 10.0, 1.5),
    ]
    assert [start.counters for start in found] == [({"n": start},) * 2 for start in (31, 17, 23)]


@pytest.mark.parametrize(
    ("lines", "told", "said"),
    [(LINES[:2], TOLD, "made 3 starts and announced 1 of 4"), (LINES, TOLD[:4], "made 2 starts and announced 4 of 4")],
)
def test_another_peer_is_refused(lines: list[tuple[float, str]], told: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(NotMeasured, match=said):
        list(startup.peer_starts(lines, RESULTS, told))


def test_settings_become_arguments() -> None:
    settings = {"model": "m", "a_b": 2, "on": True, "off": False, "c.d.e": True, "c.d.f": 1}
    assert startup.arguments_of(settings) == [
        *("--model", "m", "--a-b", "2", "--on", "--no-off"),
        *("--c", '{"d": {"e": true, "f": 1}}'),
    ]


ASK = """
import json, sys
from vllm.engine.arg_utils import EngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser
from workers.engine.settings import engine_args
parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
asked, *command_lines = map(json.loads, sys.argv[1:])
own = vars(engine_args(asked, "."))
for arguments in command_lines:
    theirs = vars(EngineArgs.from_cli_args(parser.parse_args(arguments)))
    names = {key.partition(".")[0] for key in asked}
    print(json.dumps(sorted(name for name in names if theirs[name] != own[name])))
"""


@pytest.mark.slow
def test_the_peer_understands_them(tmp_path: Path) -> None:
    """As an engine of ours does that is given the same: its own parser is asked."""
    # A folder: a name would be looked up, or refused, as the environment of this test has it.
    settings = startup.ENGINE | {"model": str(tmp_path)}
    same = startup.arguments_of(settings)
    nested = [part.replace("true", "false") for part in same]
    command = [sys.executable, "-c", ASK, *map(json.dumps, (settings, same, nested, [*same, "--max-num-seqs", "7"]))]
    env = environment.for_question("none")
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-3:] == ["[]", '["compilation_config"]', '["max_num_seqs"]']


# --- both commands ----------------------------------------------------------------------------------------------------


def test_the_peer_has_the_compiler_and_no_cache_of_the_user_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """As our arms have it; but nothing of ours is put into it."""
    for name in ("VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_LOGS", "CI"):
        monkeypatch.setenv(name, "mine")
    env = environment.for_peer("/root", 2, "/counted")
    assert (env[environment.FULL_COMPILE], env[environment.COUNTED]) == ("1", "/counted")
    assert {name for name, value in env.items() if value == "mine"} == set()
    assert all(env[name].startswith("/root") for name in ("VLLM_CACHE_ROOT", *environment.CACHES_OF_THE_GRAPH))
    assert not {environment.PATCHES, environment.TAPS, environment.EVENTS} & env.keys()


def test_a_worker_of_the_peer_leaves_its_counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once its parent's method is through, whose answer it passes on."""
    from vllm.compilation.counter import compilation_counter

    class Worker:
        def compile_or_warm_up_model(self) -> str:
            compilation_counter.num_models_seen += 1
            return "times"

    class Counted(CountedWorker, Worker):
        rank = 1

    monkeypatch.setenv(environment.COUNTED, str(tmp_path / "counted"))
    before = compilation_counter.num_models_seen
    assert [Counted().compile_or_warm_up_model() for _ in range(2)] == ["times", "times"]
    told = [json.loads(line) for line in (tmp_path / "counted").read_text().splitlines()]
    assert [(item["start"], item["rank"]) for item in told] == [(os.getppid(), 1)] * 2
    assert [item["counters"]["num_models_seen"] - before for item in told] == [1, 2]


@pytest.mark.slow
def test_a_command_that_fails_is_told_with_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of them: here for want of an interpreter that has an engine."""
    interpreter = tmp_path / "python"
    interpreter.write_text("#!/bin/sh\necho nothing here; exit 3\n")
    interpreter.chmod(0o755)
    settings = Settings(home=tmp_path / "home", python=interpreter)
    monkeypatch.setattr(startup, "WATCHED_S", 0.1)
    with pytest.raises(NotMeasured, match=r"shardproof plan ended with status 2(.|\n)*nothing here"):
        startup.startup(settings, 1)
    with pytest.raises(NotMeasured, match=r"benchmark ended with status 3:\nnothing here"):
        startup._peer(tmp_path / "peer", tmp_path, settings)
    assert not list(settings.home.glob("startup-*"))


def test_a_command_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all that it has started, when its time is up: here as soon as it has started something."""
    mark = tmp_path / "started"
    hanging = ["/bin/sh", "-c", f"sleep 1000 & echo $! > {mark}.new; mv {mark}.new {mark}; wait"]

    class UpWhenStarted(threading.Thread):
        def __init__(self, seconds: float, end: Callable[[], None]) -> None:
            super().__init__(daemon=True)
            self.end = end

        def run(self) -> None:
            while not mark.exists():
                time.sleep(0.01)
            self.end()

        def cancel(self) -> None:
            self.join()

    monkeypatch.setattr(startup.threading, "Timer", UpWhenStarted)
    assert startup._ended(hanging, dict(os.environ)).status == 137
    assert not psutil.pid_exists(int(mark.read_text()))


@pytest.mark.parametrize("ended", [startup._ended, startup._ended_by_itself])
def test_a_command_that_ends_is_told_line_by_line(ended: Callable[..., startup.Ended]) -> None:
    before = time.time()
    found = ended(["/bin/sh", "-c", "echo one; echo two >&2; exit 7"], dict(os.environ))
    assert (found.status, [line for _, line in found.lines]) == (7, ["one\n", "two\n"])
    assert before <= found.lines[0][0] <= found.lines[1][0] <= time.time()


def test_cache_keys_are_read_without_what_differs_between_any_two_commands(tmp_path: Path) -> None:
    """The environment's variables, one by one: places and the like."""
    for rank in (0, 1):
        folder = tmp_path / "torch_compile_cache" / "abc" / f"rank_{rank}_0" / "backbone"
        folder.mkdir(parents=True)
        factors = {"env": {"PLACE": "here"}, "config_hash": "a", "code_hash": "b", "compiler_hash": "c"}
        (folder / "cache_key_factors.json").write_text(json.dumps(factors))
    assert startup._cache_keys(tmp_path) == [{"config_hash": "a", "code_hash": "b", "compiler_hash": "c"}] * 2
