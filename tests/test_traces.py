"""Traces of an arm: a report of PyTorch's own, one for Perfetto, and what is said of a log that was cut."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from probes.traced import Traced, steady

from workers import environment, traces
from workers.perfetto import chrome_trace
from workers.probes.spans import ProcessSpans, Span
from workers.protocol import Traces
from workers.trace_log import examine

compiles = pytest.mark.slow


@pytest.fixture(scope="module")
def traced() -> Traced:
    """A real log, of a process that ended by itself."""
    return steady()


@pytest.fixture
def arm(traced: Traced, tmp_path: Path) -> Path:
    """A copy of the folder, in which the logs are those of two ranks."""
    folder = tmp_path / "cold"
    shutil.copytree(traced.folder, folder)
    (log,) = (folder / environment.TRACE_FOLDER).iterdir()
    for rank in (0, 1):
        shutil.copy(log, log.with_name(f"dedicated_log_torch_trace_rank_{rank}_x.log"))
    log.unlink()
    return folder


def make(traced: Traced, folder: Path) -> Traces:
    events = [{"kind": "rank", "t": traced.begin, "pid": traced.pid, "rank": 0, "started": traced.begin}]
    return traces.make(folder, events, traced.begin, traced.end)


def logs(folder: Path) -> list[Path]:
    return sorted((folder / environment.TRACE_FOLDER).iterdir())


@compiles
def test_both_reports_are_made_of_a_real_trace(traced: Traced, arm: Path) -> None:
    found = make(traced, arm)
    assert found == Traces(
        logs=[f"torch_trace/dedicated_log_torch_trace_rank_{rank}_x.log" for rank in (0, 1)],
        perfetto="perfetto.json",
        tlparse="tlparse/index.html",
        notes=[],
    )
    assert (arm / "tlparse" / "rank_1" / "index.html").exists()
    assert "rank_1" in (arm / "tlparse" / "index.html").read_text()
    names = {event["name"] for event in json.loads((arm / "perfetto.json").read_text())["traceEvents"]}
    assert {"process_name", "round 0", "bytecode_tracing"} <= names


@compiles
def test_a_log_cut_anywhere_is_told_and_costs_nothing_else(traced: Traced, arm: Path) -> None:
    """In the head of a record, in a payload, at the end of a line, and inside of a compilation between two records."""
    whole = examine(traced.log)
    content = traced.log.read_bytes()
    assert (whole.cut, whole.whole, whole.open_events) == (None, len(content), ())
    in_a_payload = content.index(b"\n\t", len(content) // 2) + 5
    in_a_head = content.index(b"\nV", len(content) // 3) + 40
    line_end = content.index(b"\n\t", len(content) // 4) + 1
    between = content.index(b"\nV", content.index(b'"name": "bytecode_tracing"')) + 1
    for length in (in_a_payload, in_a_head, line_end, between, 10):
        logs(arm)[1].write_bytes(content[:length])
        found = make(traced, arm)
        assert len(found.notes) == 1, length
        assert "structured trace of rank 1 was cut" in found.notes[0]
        assert ("it ends inside" in found.notes[0]) == (length == between)
        assert (found.perfetto, found.tlparse) == ("perfetto.json", "tlparse/index.html")
        assert (arm / "tlparse" / "rank_0" / "index.html").exists()


@compiles
def test_every_cut_but_one_between_compilations_is_seen(traced: Traced, tmp_path: Path) -> None:
    content = traced.log.read_bytes()
    log = tmp_path / "cut.log"
    unseen = []
    for length in range(0, len(content), 997):
        log.write_bytes(content[:length])
        if examine(log).cut is None:
            unseen.append(length)
    # Of nothing at all nobody can say what is missing.
    assert unseen == [0]


@compiles
def test_a_log_that_was_changed_is_read_up_to_there(traced: Traced, tmp_path: Path) -> None:
    content = traced.log.read_bytes()
    place = content.index(b"\n\t", len(content) // 2) + 5
    log = tmp_path / "changed.log"
    log.write_bytes(content[:place] + b"\x00\xff" + content[place + 2 :])
    found = examine(log)
    assert found.whole < place
    assert found.cut is not None


@compiles
def test_nothing_compiled_is_a_note(traced: Traced, arm: Path) -> None:
    shutil.rmtree(arm / environment.TRACE_FOLDER)
    found = make(traced, arm)
    assert (found.logs, found.tlparse, found.perfetto) == ([], None, "perfetto.json")
    assert found.notes == ["PyTorch wrote no structured trace: nothing was compiled"]


@compiles
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo ' thread panicked at src' >&2; exit 101", "exit status 101): thread panicked at src"),
        ("exit 0", "exit status 0): it said nothing"),
        ("sleep 60", "timed out"),
        (None, "not installed"),
    ],
)
def test_a_tlparse_that_fails_is_a_note(
    traced: Traced, arm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, said: str
) -> None:
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    if script is not None:
        (bin_folder / "tlparse").write_text(f"#!/bin/sh\n{script}\n")
        (bin_folder / "tlparse").chmod(0o755)
    monkeypatch.setattr(traces.sys, "executable", str(bin_folder / "python"))
    monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setattr(traces, "TLPARSE_S", 1.0)
    found = make(traced, arm)
    assert found.tlparse is None
    assert len(found.notes) == 1
    assert said in found.notes[0]
    assert found.perfetto == "perfetto.json"
    assert len(found.logs) == 2


@compiles
def test_a_trace_that_cannot_be_written_is_a_note(traced: Traced, arm: Path) -> None:
    (arm / "perfetto.json").mkdir()
    found = make(traced, arm)
    assert (found.perfetto, found.tlparse) == (None, "tlparse/index.html")
    assert "could not be written" in found.notes[0]


# --- the trace for Perfetto -----------------------------------------------------------------------------------------


def begin(t: float, name: str, pid: int, rank: int | None = None) -> dict[str, Any]:
    return {"kind": "phase-begin", "t": t, "pid": pid, "name": name, "rank": rank}


EVENTS = [
    begin(11.0, "import", 1), {**begin(12.0, "import", 1), "kind": "phase-end"}, begin(12.0, "start", 1),
    {"kind": "rank", "t": 13.0, "pid": 2, "rank": 0, "started": 12.5}, begin(13.0, "profile", 2, 0),
    {"kind": "first-token", "t": 18.0, "pid": 1},
]  # fmt: skip
SPANS = {
    2: ProcessSpans(2, [Span("aot_compile", 14.0, 16.0, 0, 0, "dynamo", {"range": "1–8"}),
                        Span("pass.vllm.One", 15.0, None, 1, 1, "vllm_passes")]),
    3: ProcessSpans(3, [Span("plugins", 11.5, 11.75, 0, 0, None)]),
}  # fmt: skip


def test_ranks_are_processes_and_all_times_count_from_the_start_of_the_arm() -> None:
    found = chrome_trace(EVENTS, SPANS, 10.0, 20.0)["traceEvents"]
    assert {event["pid"]: event["args"]["name"] for event in found if event["name"] == "process_name"} == {
        1: "main process", 2: "rank 0", 3: "helper",
    }  # fmt: skip
    drawn = {(e["pid"], e["tid"], e["name"]): (e["ts"], e["dur"]) for e in found if e["ph"] == "X"}
    assert drawn == {
        (1, 0, "import"): (1e6, 1e6),
        (1, 0, "start"): (2e6, 8e6),
        (2, 0, "rank_import"): (2.5e6, 0.5e6),
        (2, 0, "profile"): (3e6, 7e6),
        (2, 1, "aot_compile"): (4e6, 2e6),
        (2, 2, "pass.vllm.One"): (5e6, 5e6),
        (3, 1, "plugins"): (1.5e6, 0.25e6),
    }
    unended = [event["name"] for event in found if event["ph"] == "X" and event["args"].get("ended") is False]
    assert sorted(unended) == ["pass.vllm.One", "profile", "start"]
    assert [event["ts"] for event in found if event["ph"] == "i"] == [8e6]
    (compiled,) = [event for event in found if event["name"] == "aot_compile"]
    assert compiled["args"] == {"range": "1–8", "phase": "dynamo"}


def test_an_arm_that_said_nothing_is_an_empty_trace() -> None:
    assert chrome_trace([], {}, 0.0, 1.0) == {"traceEvents": []}
