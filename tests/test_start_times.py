"""What one start left behind becomes its times: lines, spans of every process, what it used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workers import start_times
from workers.protocol import ArmReport, CompileTimes, Outcome, Role
from workers.start_times import artifact_bytes, compile_times

COUNTERS = {
    "num_compiled_artifacts_saved": 2, "num_compiled_artifacts_loaded": 0, "num_inductor_compiles": 3,
    "num_backend_compilations": 3, "num_piecewise_capturable_graphs_seen": 3,
}  # fmt: skip
LOADED = dict.fromkeys(COUNTERS, 0) | {"num_compiled_artifacts_loaded": 1}
EVENTS: list[dict[str, Any]] = [
    {"kind": "phase-begin", "t": 101.0, "pid": 1, "name": "start", "rank": None},
    {"kind": "rank", "t": 104.0, "pid": 2, "rank": 0, "started": 102.0},
    {"kind": "phase-begin", "t": 104.5, "pid": 2, "name": "profile", "rank": 0},
    {"kind": "phase-end", "t": 107.5, "pid": 2, "name": "profile", "rank": 0},
    {"kind": "phase-end", "t": 108.0, "pid": 1, "name": "start", "rank": None},
    {"kind": "phase-begin", "t": 108.0, "pid": 1, "name": "requests", "rank": None},
    {"kind": "first-token", "t": 108.5, "pid": 1},
    {"kind": "phase-end", "t": 109.0, "pid": 1, "name": "requests", "rank": None},
]
SPANS = {
    1: [["B", 101.5, 1, "engine"], ["E", 108.0, 1, "engine"]],
    2: [["B", 103.0, 2, "plugins"], ["E", 103.5, 2, "plugins"],
        ["B", 105.0, 2, "compile_range", {"range": "1–8"}], ["B", 106.0, 2, "compile_file"]],
    9: [["B", 103.0, 9, "plugins"], ["E", 103.25, 9, "plugins"]],
}  # fmt: skip


def times(
    folder: Path, spans: dict[int, list[list[Any]]] = SPANS, counters: dict[str, int] = COUNTERS, **result: Any
) -> CompileTimes:
    for pid, lines in spans.items():
        (folder / f"spans-{pid}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    cache = folder / "cache"
    (cache / "x" / "rank_0_0").mkdir(parents=True)
    (cache / "x" / "rank_0_0" / "artifact").write_bytes(b"1234567")
    (cache / "shared").write_bytes(b"123")
    rank = {"rank": 0, "counters": counters, "peak_rss_bytes": 5, "device_peak_bytes": 6, **result.pop("rank", {})}
    report = ArmReport(role=Role.COLD, key="k", outcome=Outcome.OK, wall_s=10.0, folder=str(folder), failure=None)
    return compile_times(report, {"ranks": [rank], "kv_blocks": 64, **result}, EVENTS, 100.0, 110.0, cache)


def test_every_process_has_its_spans_from_the_start_of_the_arm(tmp_path: Path) -> None:
    main, rank, helper = times(tmp_path).processes
    assert [(process.pid, process.rank, process.started) for process in (main, rank, helper)] == [
        (1, None, None), (2, 0, 2.0), (9, None, None),
    ]  # fmt: skip
    assert [(span.name, span.begin, span.end, span.depth, span.phase) for span in rank.spans] == [
        ("plugins", 3.0, 3.5, 0, None), ("compile_range", 5.0, None, 0, "vllm_backend"),
        ("compile_file", 6.0, None, 1, "inductor_compile"),
    ]  # fmt: skip


def test_every_process_has_its_own_phases(tmp_path: Path) -> None:
    main, rank, helper = times(tmp_path).processes
    assert [(one.name, one.begin, one.end) for one in main.phases] == [("start", 1.0, 8.0), ("requests", 8.0, 9.0)]
    assert [(one.name, one.begin, one.end) for one in rank.phases] == [("profile", 4.5, 7.5)]
    assert helper.phases == []


def test_only_the_longest_spans_stand_in_the_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_times, "MOST_SPANS", 2)
    rank = times(tmp_path).processes[1]
    assert ([span.name for span in rank.spans], rank.left_out) == (["compile_range", "compile_file"], 1)


def test_spans_too_short_to_be_drawn_stand_on_disk_alone(tmp_path: Path) -> None:
    short = [["B", 104.0, 2, "short"], ["E", 104.009, 2, "short"], ["B", 105.0, 2, "long"], ["E", 105.011, 2, "long"]]
    rank = times(tmp_path, {2: short}).processes[1]
    assert ([span.name for span in rank.spans], rank.left_out) == (["long"], 1)


def test_a_process_without_a_record_is_told(tmp_path: Path) -> None:
    found = times(tmp_path, {1: SPANS[1]})
    assert [process.problems for process in found.processes] == [[], ["it wrote no spans"]]
    assert (found.ranks[0].passes, found.ranks[0].ranges) == (None, None)
    # What the events say is told all the same.
    assert {phase.name for phase in found.ranks[0].phases} >= {"spawn", "rank_import", "requests"}


def test_what_this_version_has_moved_is_told_and_not_held_against_it(tmp_path: Path) -> None:
    moved = "vllm.compilation.backends:CompilerManager.compile is not there"
    found = times(tmp_path, {2: []}, rank={"not_timed": [moved]})
    assert found.processes[1].not_timed == [moved]
    assert found.ranks[0].ranges is None
    other = tmp_path / "other"
    other.mkdir()
    assert times(other, {2: []}, rank={"not_timed": ["something else"]}).ranks[0].ranges == []


def test_what_a_rank_used(tmp_path: Path) -> None:
    found = times(tmp_path)
    (used,) = found.resources
    assert (used.peak_rss_bytes, used.device_peak_bytes) == (5, 6)
    assert (used.artifact_bytes, found.artifact_bytes) == (7, 10)
    assert (used.pieces, used.subgraphs, used.unique_subgraphs) == (3, 3, 2)
    assert (found.kv_blocks, found.first_token_s, found.time_to_first_token_s) == (64, 8.5, 0.5)


def test_a_start_that_loads_the_whole_has_cut_nothing_into_pieces(tmp_path: Path) -> None:
    (used,) = times(tmp_path, counters=LOADED).resources
    assert (used.pieces, used.subgraphs, used.unique_subgraphs) == (None, None, None)


def test_what_nobody_said_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "EVENTS", EVENTS[:3])
    found = times(tmp_path, rank={"device_peak_bytes": None}, kv_blocks=None)
    assert (found.first_token_s, found.time_to_first_token_s, found.kv_blocks) == (None, None, None)
    assert found.resources[0].device_peak_bytes is None


def test_artifacts_of_each_rank_and_of_all(tmp_path: Path) -> None:
    for place, size in (
        ("a/rank_0_0/x", 1),
        ("b/rank_0_0/deep/y", 2),
        ("a/rank_11_0/z", 4),
        ("a/shared", 8),
        ("precompiled_headers/h.gch", 16),
    ):
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    assert artifact_bytes(tmp_path) == {None: 8, 0: 3, 11: 4}
    assert artifact_bytes(tmp_path / "gone") == {None: 0}
