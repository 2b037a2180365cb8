"""What another machine tells is told as if it had happened here, and as nothing that did happen here."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from workers.arms import MOST_PROCESSES
from workers.machines import translate
from workers.probes.spans import read, read_all
from workers.watchdog.frames import Frame, Stack, Thread

SECOND, BEHIND = 2, -90.5
"""A machine whose clock is ahead of this one's by so many seconds."""


def told(**fields: Any) -> dict[str, Any]:
    return {"kind": "phase-begin", "t": 100.0, "pid": 7, "rank": 4, "name": "profile", **fields}


def test_times_are_those_of_this_machine_and_processes_nobody_s_here() -> None:
    found = translate.event(told(kind="rank", started=99.0), SECOND, BEHIND)
    assert found == told(kind="rank", started=8.5, t=9.5, pid=2 * MOST_PROCESSES + 7)


def test_two_machines_never_share_a_process() -> None:
    highest = MOST_PROCESSES - 1
    assert highest < translate.process(1, 1) < translate.process(highest, 1) < translate.process(1, 2)


@pytest.mark.parametrize("kind", ["phase-begin", "phase-end"])
def test_phases_of_a_main_process_that_leads_nothing_are_not_heard(kind: str) -> None:
    assert translate.event(told(kind=kind, rank=None), 1, 0.0) is None
    assert translate.event(told(kind="error", rank=None, message="no"), 1, 0.0) is not None, "what it dies of is"


def test_files_keep_their_place_but_for_those_that_are_here_too() -> None:
    assert translate.name("engine.log", 1) == PurePosixPath("engine-machine-1.log")
    assert translate.name("spans-7.jsonl", 1) == PurePosixPath(f"spans-{MOST_PROCESSES + 7}.jsonl")
    for same in ("again/taps-rank1.safetensors", "torch_trace/rank_1.log", "spans-x.jsonl"):
        assert translate.name(same, 1) == PurePosixPath(same)


def test_spans_are_read_as_if_they_had_been_written_here(tmp_path: Path) -> None:
    lines = [["B", 100.0, 7, "compile", {"a": 1}], ["B", 101.0, 9, "other"], ["E", 102.0, 7, "compile"]]
    original, moved = tmp_path / "there.jsonl", tmp_path / str(translate.name("spans-7.jsonl", SECOND))
    text = "".join(f"{json.dumps(line)}\n" for line in lines) + '["B", 103.0, 7, "cu'
    for path in (original, moved):
        path.write_text(text)
    translate.spans(moved, SECOND, BEHIND)
    before, after = read(original, 7), read_all(tmp_path)[translate.process(7, SECOND)]
    assert after.problems == before.problems != []
    assert [(span.name, span.thread, span.depth, span.arguments) for span in after.spans] == [
        (span.name, span.thread, span.depth, span.arguments) for span in before.spans
    ]
    assert [span.begin for span in after.spans] == [span.begin + BEHIND for span in before.spans]


def test_a_stack_comes_back_whole() -> None:
    threads = (Thread("MainThread", True, (Frame("wait", "x.py", 3),)),)
    stack = Stack(7, 5, "python", threads, None)
    found = translate.stack(json.loads(json.dumps(asdict(stack))), 1)
    assert found == Stack(MOST_PROCESSES + 7, MOST_PROCESSES + 5, "python", threads, None)
