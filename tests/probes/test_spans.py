"""Spans: what a process writes while it runs is read back whole, whatever became of the process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from workers import environment
from workers.engine import spans as recording
from workers.engine.spans import Recorder
from workers.probes import spans
from workers.probes.spans import MOST_LINES, ProcessSpans, read, read_all


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(environment.SPANS, str(tmp_path))
    return tmp_path


def written(folder: Path, lines: list[object], pid: int = 7, tail: str = "") -> ProcessSpans:
    path = folder / f"spans-{pid}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + tail)
    return read(path, pid)


def shape(found: ProcessSpans) -> list[tuple[str, float, float | None, int, int]]:
    return [(one.name, one.begin, one.end, one.depth, one.thread) for one in found.spans]


def test_what_is_recorded_is_read_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "RECORDER", Recorder())
    with recording.span("outer", {"range": "1–8"}), recording.span("inner"):
        pass
    outer, inner = read_all(folder)[os.getpid()].spans
    assert (outer.name, outer.depth, outer.arguments, inner.name, inner.depth) == (
        "outer",
        0,
        {"range": "1–8"},
        "inner",
        1,
    )
    assert outer.end is not None
    assert inner.end is not None
    assert outer.begin <= inner.begin <= inner.end <= outer.end


def test_a_span_ends_when_what_runs_in_it_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "RECORDER", Recorder())
    with pytest.raises(RuntimeError), recording.span("outer"):
        raise RuntimeError
    (found,) = read_all(folder)[os.getpid()].spans
    assert found.end is not None


def test_nothing_is_written_where_nobody_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(environment.SPANS, raising=False)
    Recorder().begin("x")
    assert read_all(tmp_path) == {}


def test_what_cannot_be_written_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment.SPANS, str(tmp_path / "gone"))
    Recorder().begin("x")


def test_a_process_that_is_forked_off_has_a_file_of_its_own(folder: Path) -> None:
    recorder = Recorder()
    recorder.begin("parent")
    child = os.fork()
    if child == 0:
        recorder.begin("child")
        os._exit(0)
    os.waitpid(child, 0)
    found = read_all(folder)
    assert {pid: [one.name for one in process.spans] for pid, process in found.items()} == {
        os.getpid(): ["parent"],
        child: ["child"],
    }
    assert found[child].spans[0].thread == 0


def test_a_process_that_is_killed_leaves_all_up_to_then(folder: Path) -> None:
    code = "import os, signal; from workers.engine.spans import RECORDER as r; r.begin('a'); r.begin('b'); r.end('b'); r.begin('c'); os.kill(os.getpid(), signal.SIGKILL)"  # noqa: E501
    done = subprocess.run([sys.executable, "-c", code], timeout=60)
    assert done.returncode == -signal.SIGKILL
    ((_, found),) = read_all(folder).items()
    assert [(one.name, one.end is None) for one in found.spans] == [("a", True), ("b", False), ("c", True)]
    assert found.problems == []


def test_threads_have_stacks_of_their_own(folder: Path) -> None:
    found = written(folder, [["B", 1.0, 7, "main"], ["B", 2.0, 9, "load"], ["E", 3.0, 7, "main"], ["E", 4.0, 9, "load"],
                             ["B", 5.0, 8, "third"]])  # fmt: skip
    assert shape(found) == [("main", 1.0, 3.0, 0, 0), ("load", 2.0, 4.0, 0, 1), ("third", 5.0, None, 0, 2)]


def test_what_began_inside_and_never_ended_ends_with_what_is_around_it(folder: Path) -> None:
    found = written(folder, [["B", 1.0, 7, "outer"], ["B", 2.0, 7, "lost"], ["E", 4.0, 7, "outer"]])
    assert shape(found) == [("outer", 1.0, 4.0, 0, 0), ("lost", 2.0, 4.0, 1, 0)]


def test_an_end_without_a_beginning_ends_nothing(folder: Path) -> None:
    assert shape(written(folder, [["B", 1.0, 7, "a"], ["E", 2.0, 7, "b"]])) == [("a", 1.0, None, 0, 0)]


LINES: list[object] = [["B", 1.0, 7, "outer"], ["B", 2.0, 7, "inner", {"range": "1–8"}], ["E", 3.0, 7, "inner"],
                       ["E", 4.0, 7, "outer"]]  # fmt: skip


def test_a_file_cut_anywhere_costs_what_was_cut_off_and_is_told(folder: Path) -> None:
    whole = written(folder, LINES)
    path = folder / "spans-7.jsonl"
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        found = read(path, 7)
        complete = content[:length].count(b"\n")
        # A line of which only the line break is missing says all it had to say.
        said = complete + (length + 1 <= len(content) and content[length : length + 1] == b"\n")
        assert len(found.spans) == sum(line[0] == "B" for line in LINES[:said])  # type: ignore[index]
        in_a_line = length > 0 and content[length - 1 : length] != b"\n"
        assert any("middle of a line" in problem for problem in found.problems) == in_a_line
        assert len(found.problems) <= 1
    assert whole.problems == []


@pytest.mark.parametrize("nonsense", ['"B"', "[1]", '["X", 1.0, 7, "a"]', '["B", "1", 7, "a"]', "{}", "\x00"])
def test_a_line_that_is_none_is_counted_and_costs_nothing_else(folder: Path, nonsense: str) -> None:
    path = folder / "spans-7.jsonl"
    lines = [json.dumps(line) for line in LINES]
    path.write_text("\n".join([lines[0], nonsense, *lines[1:]]) + "\n")
    found = read(path, 7)
    assert [one.name for one in found.spans] == ["outer", "inner"]
    assert found.problems == ["1 of 5 lines of its spans could not be read"]


def test_a_run_of_hours_does_not_fill_the_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MOST_LINES", 4)
    recorder = Recorder()
    for _ in range(9):
        recorder.begin("x")
    monkeypatch.setattr(spans, "MOST_LINES", 4)
    found = read_all(folder)[os.getpid()]
    assert len(found.spans) == 4
    assert found.problems == ["its spans were not written beyond 4 lines"]
    assert MOST_LINES >= 100_000


def test_what_an_earlier_start_left_is_forgotten(folder: Path) -> None:
    written(folder, LINES)
    (folder / "result.json").write_text("{}")
    spans.forget(folder)
    assert [path.name for path in folder.iterdir()] == ["result.json"]
