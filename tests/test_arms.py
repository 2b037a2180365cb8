"""An arm followed from outside, its engine played by a script: how it ended is told, and nothing of it is left.

The script stands in for the interpreter of the engine environment. It sends the events of an engine that behaves as the
scenario says. Where the order matters it waits at a gate until the test has seen what came before.
"""

from __future__ import annotations

import json
import os
import select
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workers.arms import LOG_TAIL_LINES, Arm, RawEvent, tail
from workers.protocol import ArmReport, ArmSpec, BatchPlan, Failure, Outcome, Patch, PatchMode, Role
from workers.watchdog.causes import read
from workers.watchdog.stacks import take

pytestmark = pytest.mark.timeout(60)

PRELUDE = """
import json, os, signal, sys, time

path = os.environ["SHARDPROOF_EVENTS"]
folder = os.path.dirname(path)
pipe = os.open(path, os.O_WRONLY)

def send(text):
    os.write(pipe, text.encode())

def emit(kind, **data):
    send(json.dumps({"kind": kind, "t": time.monotonic(), "pid": os.getpid(), "rank": None, **data}) + "\\n")

def begin(name, rank=None):
    emit("phase-begin", name=name, rank=rank)

def end(name, rank=None):
    emit("phase-end", name=name, rank=rank)

def error(name, message, rank=None):
    emit("error", name=name, message=message, rank=rank)

def gate(name):
    os.read(os.open(f"{folder}/{name}", os.O_RDONLY), 1)

def tell(name):
    os.write(os.open(f"{folder}/{name}", os.O_WRONLY), b".")

def kill_me(number=signal.SIGKILL):
    os.kill(os.getpid(), number)

def pause():
    while True:
        signal.pause()

def start(rank, *steps):
    pid = os.fork()
    if pid == 0:
        emit("rank", rank=rank, started=time.monotonic())
        for step in steps:
            step()
        pause()
    return pid

def deliver():
    with open(f"{folder}/result.json", "w") as file:
        json.dump({"ranks": [{"peak_rss_bytes": 5}, {"peak_rss_bytes": 7}]}, file)
"""


class Stage:
    """A folder for one arm whose engine plays a scenario. Gates are opened by name."""

    def __init__(self, root: Path, **spec: Any) -> None:
        self.folder = root / "arm"
        self.folder.mkdir()
        self.python = root / "python"
        self.gates: dict[str, int] = {}
        settings: dict[str, Any] = {
            "role": Role.PROBE,
            "key": "k1",
            "engine": {"model": "tiny:llama"},
            "patches": {Patch.FULL_GRAPH_SP: PatchMode.ON},
            "env": {"OF_THE_CELL": "yes"},
            "batch": BatchPlan(),
            "taps": True,
            "folder": str(self.folder),
            "cache_root": str(root / "cache"),
            "models_dir": str(root / "models"),
            "timeout_s": 600.0,
        }
        self.spec = ArmSpec(**(settings | spec))

    def play(self, scenario: str, *gates: str) -> Arm:
        # The script's own imports are all of the standard library.
        self.python.write_text(f"#!{sys.executable} -S\n{PRELUDE}\n{scenario}\n")
        self.python.chmod(0o755)
        for name in gates:
            os.mkfifo(self.folder / name)
            self.gates[name] = os.open(self.folder / name, os.O_RDWR)
        return Arm(self.spec, 2, str(self.python))

    def open(self, name: str) -> None:
        os.write(self.gates[name], b"\n")

    def wait(self, name: str) -> None:
        """Until the scenario has told so."""
        os.read(self.gates[name], 1)

    def close(self) -> None:
        for descriptor in self.gates.values():
            os.close(descriptor)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    made = Stage(tmp_path)
    yield made
    made.close()
    assert list((tmp_path / "tmp").iterdir()) == []


def run(arm: Arm, react: Callable[[RawEvent], None] = lambda event: None) -> ArmReport:
    """Follow ``arm`` to its end. No process that sent an event is left then."""
    alive: dict[int, int] = {}
    with arm:
        for event in arm.follow():
            if event["pid"] not in alive and os.path.exists(f"/proc/{event['pid']}"):
                alive[event["pid"]] = os.pidfd_open(event["pid"])
            react(event)
        poll = select.poll()
        for descriptor in alive.values():
            poll.register(descriptor, select.POLLIN)
        assert len(poll.poll(0)) == len(alive)
    for descriptor in alive.values():
        os.close(descriptor)
    return arm.report()


def on(stage: Stage, opens: dict[str, tuple[str, int | None]]) -> Callable[[RawEvent], None]:
    """Open a gate when (kind or name, rank) has been seen."""

    def react(event: RawEvent) -> None:
        for gate, (what, rank) in opens.items():
            if what in (event["kind"], event.get("name")) and event.get("rank") == rank:
                stage.open(gate)

    return react


def told(report: ArmReport) -> tuple[Outcome, int | None, str | None, str]:
    assert report.failure is not None
    return report.outcome, report.failure.rank, report.failure.phase, report.failure.message


# --- it comes through ------------------------------------------------------------------------------------------------


def test_an_arm_that_comes_through(stage: Stage) -> None:
    arm = stage.play("begin('import'); end('import'); begin('start'); start(0); end('start'); deliver()")
    report = run(arm)
    assert (report.outcome, report.failure, report.peak_rss_bytes) == (Outcome.OK, None, 7)
    assert (report.role, report.key, report.folder) == (Role.PROBE, "k1", str(stage.folder))
    assert report.wall_s == arm.end - arm.begin > 0
    assert arm.result() == {"ranks": [{"peak_rss_bytes": 5}, {"peak_rss_bytes": 7}]}


def test_events_come_in_the_order_in_which_each_process_sent_them(stage: Stage) -> None:
    scenario = (
        "begin('start'); start(0, lambda: begin('a', 0), lambda: end('a', 0)); gate('go'); end('start'); deliver()"
    )
    arm = stage.play(scenario, "go")
    seen: list[RawEvent] = []
    go = on(stage, {"go": ("phase-end", 0)})

    def react(event: RawEvent) -> None:
        seen.append(event)
        go(event)

    run(arm, react)
    assert seen == arm.events
    assert [event["kind"] for event in seen if event["rank"] == 0] == ["rank", "phase-begin", "phase-end"]
    assert [event["kind"] for event in seen if event["rank"] is None] == ["phase-begin", "phase-end"]


def test_what_the_engine_is_given(stage: Stage) -> None:
    arm = stage.play("print(sys.argv[1:]); print(json.dumps(dict(os.environ))); deliver()")
    assert run(arm).outcome is Outcome.OK
    arguments, variables = tail(stage.folder / "engine.log")[0], (stage.folder / "engine.log").read_text()
    assert arguments == str(["-m", "workers.engine", "run", "--request", str(stage.folder / "spec.json")])
    seen = json.loads(variables.splitlines()[1])
    assert (seen["OF_THE_CELL"], seen["SHARDPROOF_TAPS"]) == ("yes", "1")
    assert json.loads(seen["SHARDPROOF_PATCHES"]) == {"full_graph_sp": "on"}
    assert ArmSpec.model_validate_json((stage.folder / "spec.json").read_bytes()) == stage.spec


def test_the_pipe_is_gone_afterwards_and_an_old_one_is_no_obstacle(stage: Stage) -> None:
    os.mkfifo(stage.folder / "events")
    assert run(stage.play("deliver()")).outcome is Outcome.OK
    assert sorted(path.name for path in stage.folder.iterdir()) == ["engine.log", "result.json", "spec.json"]


@pytest.mark.parametrize("known", [True, False])
def test_what_is_known_of_models_is_taken_over(tmp_path: Path, known: bool) -> None:
    source = tmp_path / "questions"
    if known:
        (source / "modelinfos" / "llama").mkdir(parents=True)
    stage = Stage(tmp_path, known_models=str(source))
    assert run(stage.play("deliver()")).outcome is Outcome.OK
    assert (tmp_path / "cache" / "modelinfos" / "llama").is_dir() is known


# --- its main process goes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ends", "status"),
    [("os._exit(3)", 3), ("kill_me()", 137), ("kill_me(signal.SIGSEGV)", 139), ("sys.exit(0)", 0)],
)
def test_an_engine_that_ends_without_a_word(stage: Stage, ends: str, status: int) -> None:
    report = run(stage.play(f"begin('import'); end('import'); begin('config'); {ends}"))
    said = f"the engine's main process ended without a word (exit status of the engine: {status})"
    assert told(report) == (Outcome.CRASHED, None, "config", said)
    assert report.peak_rss_bytes is None


def test_an_engine_that_dies_of_a_memory_fault(stage: Stage) -> None:
    dies = "import faulthandler; faulthandler.enable(); kill_me(signal.SIGSEGV)"
    _, _, phase, message = told(run(stage.play(f"begin('import'); end('import'); begin('config'); {dies}")))
    assert phase == "config"
    said = "the engine's main process ended without a word (exit status of the engine: 139)"
    assert message.startswith(f"{said}; the engine's log tells of a memory fault (")


def test_an_engine_that_ends_before_its_first_word(stage: Stage) -> None:
    outcome, rank, phase, message = told(run(stage.play("sys.exit(4)")))
    assert (outcome, rank, phase) == (Outcome.CRASHED, None, None)
    assert message.endswith("(exit status of the engine: 4)")


def test_a_result_does_not_help_an_engine_that_failed_after_it(stage: Stage) -> None:
    assert run(stage.play("begin('collect'); deliver(); os._exit(1)")).outcome is Outcome.CRASHED


def test_the_result_of_an_earlier_attempt_does_not_count(stage: Stage) -> None:
    (stage.folder / "result.json").write_text('{"ranks": []}')
    assert run(stage.play("begin('import'); os._exit(0)")).outcome is Outcome.CRASHED


def test_a_result_cut_in_the_middle_is_none(stage: Stage) -> None:
    arm = stage.play("deliver(); file = open(f'{folder}/result.json', 'r+'); file.truncate(9)")
    assert run(arm).outcome is Outcome.CRASHED
    assert arm.result() is None


def test_an_interpreter_that_is_not_there(stage: Stage) -> None:
    arm = stage.play("")
    stage.python.unlink()
    report = run(arm)
    assert report.outcome is Outcome.CRASHED
    assert report.failure is not None
    assert "No such file" in report.failure.log_tail[-1]


def test_the_log_s_last_lines_are_kept(stage: Stage) -> None:
    report = run(stage.play("print('a' * 600)\nfor n in range(50): print(f'line {n}')\nsys.exit('the end')"))
    assert report.failure is not None
    lines = report.failure.log_tail
    assert (len(lines), lines[-1], lines[-2]) == (LOG_TAIL_LINES, "the end", "line 49")
    assert lines == tail(stage.folder / "engine.log")
    assert len(tail(stage.folder / "engine.log", 60)[0]) == 500


def test_a_log_that_is_not_there_has_no_lines(tmp_path: Path) -> None:
    assert tail(tmp_path / "engine.log") == []
    (tmp_path / "engine.log").write_bytes(b"bad \xff byte\n")
    assert tail(tmp_path / "engine.log") == ["bad � byte"]


TWO_RANKS = """
begin("start")
start(0, lambda: begin("load_model", 0), *{first})
start(1, lambda: begin("load_model", 1), *{second})
{main}
"""


def two_ranks(main: str, first: str = "()", second: str = "()") -> str:
    return TWO_RANKS.format(main=main, first=first, second=second)


class Both:
    """Opens ``gate`` when both ranks are in their phase. ``then`` is what a slow consumer of events waits for."""

    def __init__(self, stage: Stage, gate: str, then: Callable[[list[int]], None] = lambda pids: None) -> None:
        self._stage, self._gate, self._then = stage, gate, then
        self._pids: dict[int, int] = {}
        self._ready = 0

    def __call__(self, event: RawEvent) -> None:
        if event["pid"] not in self._pids:
            self._pids[event["pid"]] = os.pidfd_open(event["pid"])
        if event.get("name") == "load_model" and event["kind"] == "phase-begin":
            self._ready += 1
            if self._ready == 2:
                self._stage.open(self._gate)
                self._then(list(self._pids.values()))
                for descriptor in self._pids.values():
                    os.close(descriptor)


def until_all_are_gone(pidfds: list[int]) -> None:
    for descriptor in pidfds:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        assert poll.poll(30_000)


SLOW = pytest.mark.parametrize("slow", [False, True], ids=["seen one by one", "seen at once"])
"""Whether the events' consumer holds the arm up until all that is to come has happened."""


@SLOW
def test_ranks_that_fall_with_their_main_process_are_not_to_blame(stage: Stage, slow: bool) -> None:
    arm = stage.play(two_ranks("gate('go'); kill_me()"), "go")
    both = Both(stage, "go", until_all_are_gone) if slow else Both(stage, "go")
    said = "the engine's main process ended without a word (exit status of the engine: 137)"
    assert told(run(arm, both)) == (Outcome.CRASHED, None, "start", said)


@SLOW
def test_the_main_process_s_own_error_is_its_own(stage: Stage, slow: bool) -> None:
    arm = stage.play(two_ranks("gate('go'); error('start', 'ValueError: no'); end('start'); os._exit(1)"), "go")
    both = Both(stage, "go", until_all_are_gone) if slow else Both(stage, "go")
    assert told(run(arm, both)) == (Outcome.CRASHED, None, "start", "ValueError: no")


# --- a rank goes -----------------------------------------------------------------------------------------------------
# Whoever speaks of a death waits until the dead process has been reaped, and ends when the test has heard it.


@SLOW
def test_a_rank_that_goes_without_a_word_comes_before_what_is_said_of_it(stage: Stage, slow: bool) -> None:
    main = "os.wait(); error('start', 'RuntimeError: a worker died'); tell('said'); gate('end'); os._exit(1)"
    arm = stage.play(two_ranks(main, second="(lambda: gate('die'), kill_me)"), "die", "said", "end")
    both = Both(stage, "die", lambda pids: stage.wait("said")) if slow else Both(stage, "die")

    def react(event: RawEvent) -> None:
        both(event)
        if event["kind"] == "error":
            stage.open("end")

    said = "rank 1 ended without a word (exit status of the engine: 1)"
    assert told(run(arm, react)) == (Outcome.CRASHED, 1, "load_model", said)


@SLOW
def test_a_rank_that_goes_without_a_word_comes_before_the_complaint_of_another(stage: Stage, slow: bool) -> None:
    complains = "(lambda: gate('complain'), lambda: error('load_model', 'closed', 1), lambda: tell('said'))"
    scenario = two_ranks("os.wait(); tell('complain'); pause()", "(lambda: gate('die'), kill_me)", complains)
    arm = stage.play(scenario, "die", "complain", "said")
    both = Both(stage, "die", lambda pids: stage.wait("said")) if slow else Both(stage, "die")

    def react(event: RawEvent) -> None:
        both(event)
        if event["kind"] == "error":
            arm.cut()

    said = "rank 0 ended without a word (exit status of the engine: 137)"
    assert told(run(arm, react)) == (Outcome.CRASHED, 0, "load_model", said)


@SLOW
def test_a_rank_s_own_error_comes_before_what_the_main_process_says_of_it(stage: Stage, slow: bool) -> None:
    main = "os.wait(); error('start', 'RuntimeError: a worker failed'); os._exit(1)"
    fails = "(lambda: gate('fail'), lambda: error('load_model', 'OSError: no weights', 1), lambda: os._exit(1))"
    arm = stage.play(two_ranks(main, second=fails), "fail")
    both = Both(stage, "fail", until_all_are_gone) if slow else Both(stage, "fail")
    assert told(run(arm, both)) == (Outcome.CRASHED, 1, "load_model", "OSError: no weights")


def test_an_error_without_words_is_told_in_ours(stage: Stage) -> None:
    report = run(stage.play("begin('config'); error('config', ''); os._exit(2)"))
    said = "the engine's main process ended without a word (exit status of the engine: 2)"
    assert told(report) == (Outcome.CRASHED, None, "config", said)


def test_a_rank_that_goes_between_its_phases_goes_in_the_engine_s(stage: Stage) -> None:
    scenario = """
begin("start")
start(0, lambda: begin("warm_up", 0), lambda: end("warm_up", 0), lambda: gate("die"), kill_me)
gate("serve")
end("start"); begin("requests")
os.wait(); error("requests", "RuntimeError: a worker died"); gate("end"); os._exit(1)
"""
    arm = stage.play(scenario, "serve", "die", "end")
    react = on(stage, {"serve": ("phase-end", 0), "die": ("requests", None)})
    end = on(stage, {"end": ("error", None)})

    def both(event: RawEvent) -> None:
        if event["kind"] == "error":
            end(event)
        else:
            react(event)

    outcome, rank, phase, _ = told(run(arm, both))
    assert (outcome, rank, phase) == (Outcome.CRASHED, 0, "requests")


def test_a_rank_that_is_gone_before_it_can_be_watched(stage: Stage) -> None:
    scenario = """
begin("start")
pid = os.fork()
if pid == 0:
    os._exit(0)
os.wait()
send(json.dumps({"kind": "rank", "t": time.monotonic(), "pid": pid, "rank": 1}) + "\\n")
gate("end")
os._exit(1)
"""
    arm = stage.play(scenario, "end")
    outcome, rank, phase, _ = told(run(arm, on(stage, {"end": ("rank", 1)})))
    assert (outcome, rank, phase) == (Outcome.CRASHED, 1, "start")


def test_a_rank_in_the_main_process_goes_by_its_rank(stage: Stage) -> None:
    report = run(stage.play("begin('start'); emit('rank', rank=0); begin('profile', 0); kill_me(signal.SIGSEGV)"))
    said = "rank 0 ended without a word (exit status of the engine: 139)"
    assert told(report) == (Outcome.CRASHED, 0, "profile", said)


# --- it does not come to an end --------------------------------------------------------------------------------------


def out_of_time(arm: Arm) -> None:
    """Let the arm's time be up now, whatever the clock says."""
    arm.begin -= arm.spec.timeout_s


HANGS = """
begin("start")
go_on = lambda: gate("next"), lambda: end("load_model", 0), lambda: begin("profile", 0)
start(0, lambda: begin("load_model", 0), *go_on)
start(1, lambda: begin("load_model", 1))
pause()
"""


def test_of_an_engine_that_hangs_the_rank_longest_in_its_phase_is_named(stage: Stage) -> None:
    arm = stage.play(HANGS, "next")
    loading = Both(stage, "next")

    def react(event: RawEvent) -> None:
        loading(event)
        if event.get("name") == "profile":
            out_of_time(arm)

    said = "rank 1 did not come to an end within 600 s; the engine's processes were killed"
    assert told(run(arm, react)) == (Outcome.TIMED_OUT, 1, "load_model", said)


def test_a_main_process_that_hangs(stage: Stage) -> None:
    scenario = "begin('start'); start(0); gate('on'); end('start'); begin('requests'); pause()"
    arm = stage.play(scenario, "on")
    go = on(stage, {"on": ("rank", 0)})

    def react(event: RawEvent) -> None:
        go(event)
        if event.get("name") == "requests":
            out_of_time(arm)

    outcome, rank, phase, message = told(run(arm, react))
    assert (outcome, rank, phase) == (Outcome.TIMED_OUT, None, "requests")
    assert message.startswith("the engine's main process did not come to an end within 600 s")


def test_an_error_before_the_hang_tells_why(stage: Stage) -> None:
    arm = stage.play(
        "begin('start'); start(0, lambda: begin('profile', 0), lambda: error('profile', 'no', 0)); pause()"
    )

    def react(event: RawEvent) -> None:
        if event["kind"] == "error":
            out_of_time(arm)

    assert told(run(arm, react)) == (Outcome.TIMED_OUT, 0, "profile", "no")


def test_an_engine_that_never_stops_talking_runs_out_of_time_too(stage: Stage) -> None:
    arm = stage.play("begin('start')\nwhile True: begin('again')")
    seen: list[RawEvent] = []

    def react(event: RawEvent) -> None:
        seen.append(event)
        assert len(seen) < 10_000
        if len(seen) == 3:
            out_of_time(arm)
        if not arm._timed_out:
            # There is always more to read: the arm is never idle.
            assert select.select([arm._pipe], [], [], 30)[0]

    outcome, rank, phase, _ = told(run(arm, react))
    assert (outcome, rank, phase) == (Outcome.TIMED_OUT, None, "again")


def test_an_engine_that_closed_the_pipe_without_a_word_runs_out_of_time_too(tmp_path: Path) -> None:
    stage = Stage(tmp_path, timeout_s=1.0)
    assert run(stage.play("os.close(pipe)\npause()")).outcome is Outcome.TIMED_OUT


# --- what it was at --------------------------------------------------------------------------------------------------

BARRIER = f"""
sys.path.append({sysconfig.get_path("purelib")!r})
import torch.distributed as group

def join(rank):
    store = group.FileStore(folder + "/store", 2)
    group.init_process_group("gloo", store=store, rank=rank, world_size=2)

begin("start")
start(0, lambda: join(0), lambda: begin("profile", 0), group.barrier)
start(1, lambda: join(1), lambda: gate("next"), lambda: begin("profile", 1))
pause()
"""


@pytest.mark.slow
def test_a_rank_that_waits_in_a_collective_is_not_the_one_that_hangs(stage: Stage) -> None:
    arm = stage.play(BARRIER, "next")
    go = on(stage, {"next": ("profile", 0)})

    def react(event: RawEvent) -> None:
        go(event)
        if (event.get("name"), event["rank"]) == ("profile", 1):
            waiting = next(pid for pid, rank in arm._rank_of.items() if rank == 0)
            while not any(read(stack).waits for stack in take(arm._process.pid) if stack.pid == waiting):
                pass
            out_of_time(arm)

    report = run(arm, react)
    assert told(report)[:3] == (Outcome.TIMED_OUT, 1, "profile")
    assert report.failure is not None
    assert (report.failure.cause or "").startswith("unknown, in pause (")
    doing = {process.rank: process.doing for process in report.failure.processes if not process.main}
    assert doing[0].startswith("waiting for other ranks in a collective, in ")
    assert doing[1] == report.failure.cause


def test_what_was_known_of_an_arm_that_hangs_is_kept(stage: Stage) -> None:
    arm = stage.play(two_ranks("pause()"))
    both = Both(stage, "", lambda pids: out_of_time(arm))
    stage.open = lambda name: None  # type: ignore[method-assign]
    report = run(arm, both)
    failure = report.failure
    assert failure is not None
    assert failure.stacks == str(stage.folder / "stacks.txt")
    assert {(process.rank, process.main, process.phase) for process in failure.processes} == {
        (None, True, "start"),
        (0, False, "load_model"),
        (1, False, "load_model"),
    }
    assert all(process.s is not None and process.s >= 0 for process in failure.processes)
    assert failure.since_s is not None
    text = (stage.folder / "stacks.txt").read_text()
    assert text.count(" (main), innermost first") == 3
    assert text.count("    pause (") == 3
    kept = [json.loads(line) for line in (stage.folder / "events.jsonl").read_text().splitlines()]
    assert kept == arm.events[: len(kept)]
    assert [event["kind"] for event in kept].count("phase-begin") == 3


def test_stacks_that_cannot_be_written_cost_nothing_else(stage: Stage) -> None:
    (stage.folder / "stacks.txt").mkdir()
    arm = stage.play("begin('start'); pause()")
    failure = run(arm, lambda event: out_of_time(arm)).failure
    assert failure is not None
    assert (failure.phase, failure.stacks, len(failure.processes)) == ("start", None, 1)


LONG_AGO = """
begin("start")
start(0, lambda: emit("phase-begin", rank=0, name="profile", t=time.monotonic() - 100), {then})
{main}
"""


def test_a_phase_has_a_limit_of_its_own(tmp_path: Path) -> None:
    stage = Stage(tmp_path, phase_timeout_s=90.0)
    report = run(stage.play(LONG_AGO.format(then="pause", main="pause()")))
    said = "rank 0 did not come to the end of its phase within 90 s; the engine's processes were killed"
    assert told(report) == (Outcome.TIMED_OUT, 0, "profile", said)
    assert report.failure is not None
    assert (report.failure.since_s or 0.0) >= 100


@pytest.mark.parametrize("limit", [None, 110.0])
def test_a_phase_within_its_limit_goes_on(tmp_path: Path, limit: float | None) -> None:
    stage = Stage(tmp_path, phase_timeout_s=limit)
    arm = stage.play(
        LONG_AGO.format(then="lambda: gate('on'), lambda: tell('done')", main="gate('done'); deliver()"), "on", "done"
    )
    assert run(arm, on(stage, {"on": ("profile", 0)})).outcome is Outcome.OK
    stage.close()


def test_silence_has_a_limit(tmp_path: Path) -> None:
    stage = Stage(tmp_path, silence_s=1.0)
    outcome, rank, phase, message = told(run(stage.play("begin('start'); pause()")))
    assert (outcome, rank, phase) == (Outcome.TIMED_OUT, None, "start")
    assert message == "nothing was heard of the engine for 1 s; the engine's processes were killed"


# --- its events ------------------------------------------------------------------------------------------------------


def test_a_line_cut_in_the_middle_is_no_event(stage: Stage) -> None:
    arm = stage.play("begin('import'); send('{\"kind\": \"phase-be'); kill_me()")
    outcome, _, phase, _ = told(run(arm))
    assert (outcome, phase, len(arm.events)) == (Outcome.CRASHED, "import", 1)


@pytest.mark.parametrize("text", ["no json", "[1, 2]", '{"t": 1, "pid": 2}', '{"kind": "x", "t": 1}', "", '"kind"'])
def test_what_is_no_event_is_passed_over(stage: Stage, text: str) -> None:
    arm = stage.play(f"begin('import'); send({text + chr(10)!r}); end('import'); deliver()")
    assert run(arm).outcome is Outcome.OK
    assert [event["kind"] for event in arm.events] == ["phase-begin", "phase-end"]


def test_more_events_than_the_pipe_holds(stage: Stage) -> None:
    arm = stage.play("for n in range(3000): begin(f'phase {n}')\ndeliver()")
    assert run(arm).outcome is Outcome.OK
    assert [event["name"] for event in arm.events] == [f"phase {n}" for n in range(3000)]


def test_events_come_although_everybody_had_closed_the_pipe_in_between(stage: Stage) -> None:
    scenario = (
        "begin('a'); os.close(pipe); gate('go'); pipe = os.open(path, os.O_WRONLY); begin('b'); gate('end'); deliver()"
    )
    arm = stage.play(scenario, "go", "end")
    react = on(stage, {"go": ("a", None), "end": ("b", None)})
    assert run(arm, react).outcome is Outcome.OK
    assert [event["name"] for event in arm.events] == ["a", "b"]


# --- nothing is left -------------------------------------------------------------------------------------------------

DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        emit("rank", rank=0)
        pause()
    os._exit(0)
begin("start")
gate("end")
deliver()
"""


def test_a_process_that_hid_itself_is_ended_with_the_arm(stage: Stage) -> None:
    arm = stage.play(DAEMON, "end")
    seen: set[int] = set()

    def react(event: RawEvent) -> None:
        seen.add(event["pid"])
        if len(seen) == 2:
            stage.open("end")

    assert run(arm, react).outcome is Outcome.OK
    assert len(seen) == 2
    assert not any(os.path.exists(f"/proc/{pid}") for pid in seen)


def test_leaving_the_block_ends_what_still_runs(stage: Stage) -> None:
    arm = stage.play(two_ranks("pause()"))
    held: dict[int, int] = {}
    with arm:
        for event in arm.follow():
            held.setdefault(event["pid"], os.pidfd_open(event["pid"]))
            if len(held) == 3:
                break
    poll = select.poll()
    for descriptor in held.values():
        poll.register(descriptor, select.POLLIN)
    assert len(poll.poll(0)) == 3
    for descriptor in held.values():
        os.close(descriptor)


def test_no_descriptor_is_left_open(stage: Stage) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = count()
    run(stage.play(two_ranks("deliver()")))
    assert count() == before


# --- ranks of other machines -----------------------------------------------------------------------------------------

ELSEWHERE = Failure(phase="profile", rank=1, message="rank 1 ended without a word", log_tail=["there"])


def complaint(stage: Stage, later_s: float) -> ArmReport:
    """Rank 0 complains, and rank 1 died on another machine so many seconds later, or before."""
    scenario = "start(0, lambda: begin('a', 0), lambda: error('a', 'connection closed', 0)); gate('go'); os._exit(1)"
    arm = stage.play(scenario, "go")

    def react(event: RawEvent) -> None:
        if event["kind"] == "error":
            arm.blame(event["t"] + later_s, ELSEWHERE)
            stage.open("go")

    return run(arm, react)


def test_what_died_first_on_another_machine_is_the_finding(stage: Stage) -> None:
    assert complaint(stage, later_s=-0.5).failure == ELSEWHERE


def test_what_died_later_there_is_not(stage: Stage) -> None:
    report = complaint(stage, later_s=0.5)
    assert told(report) == (Outcome.CRASHED, 0, "a", "connection closed")


def test_the_rest_is_ended_when_another_machine_s_ranks_are_gone(stage: Stage) -> None:
    arm = stage.play("start(0); emit('portion-ended', pid=1 << 22, rank=None); pause()")
    report = run(arm)
    assert report.outcome is Outcome.CRASHED


def test_a_process_of_another_machine_is_not_looked_for_here(stage: Stage) -> None:
    """No process here has that number; a rank of this machine that is gone would be a finding."""
    scenario = "start(0); emit('rank', rank=1, pid=(1 << 22) + 5, started=1.0); begin('a'); end('a'); deliver()"
    assert run(stage.play(scenario)).outcome is Outcome.OK
