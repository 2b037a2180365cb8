"""From what one start left behind to its times: lines of the ranks, spans of the processes, counters, what it used."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workers.environment import HEADERS_FOLDER
from workers.probes import spans
from workers.probes.timeline import RawEvent, Segment, first_token, rank_times, segments
from workers.protocol import (
    ArmReport,
    Artifacts,
    CompileTimes,
    ProcessTimes,
    RankArtifacts,
    RankResources,
    RankTimes,
    Span,
)

Result = dict[str, Any]
"""``result.json`` of an arm, see ``workers.engine.arm``."""

SHORTEST_S, MOST_SPANS = 0.01, 200
"""Spans of a process from so many seconds on, at most so many, the longest, go into the evidence; all stay on disk."""

_RANK_FOLDER = re.compile(r"rank_(\d+)_\d+")
"""vLLM's folders of what it keeps for one rank, in the cache root."""


def compile_times(
    report: ArmReport,
    result: Result,
    events: Sequence[RawEvent],
    begin: float,
    end: float,
    cache_root: Path,
    elsewhere: Mapping[int | None, int] | None = None,
) -> CompileTimes:
    """The time line of every rank, and vLLM's counters as proof of cold or warm.

    Args:
        report: of the arm; its folder holds the spans.
        events, begin, end: see ``workers.probes.timeline.rank_times``.
        cache_root: of the arm, as it left it.
        elsewhere: bytes that its ranks on other machines left there, as ``artifact_bytes`` tells them.
    """
    ranks = [_artifacts(rank) for rank in result["ranks"]]
    sizes = _joined(artifact_bytes(cache_root), elsewhere or {})
    recorded = spans.read_all(Path(report.folder))
    missing = {rank["rank"]: rank.get("not_timed", []) for rank in result["ranks"]}
    came = first_token(events)
    asked = next((e["t"] for e in events if e["kind"] == "phase-begin" and e["name"] == "requests"), None)
    return CompileTimes(
        total_s=report.wall_s,
        ranks=[_as_far_as_hooked(line, missing) for line in rank_times(events, begin, end, recorded)],
        artifacts=Artifacts(
            saved=sum(rank.saved for rank in ranks), loaded=sum(rank.loaded for rank in ranks), ranks=ranks
        ),
        processes=_processes(recorded, missing, events, begin),
        resources=[_resources(rank, sizes) for rank in result["ranks"]],
        artifact_bytes=sum(sizes.values()),
        kv_blocks=result.get("kv_blocks"),
        first_token_s=None if came is None else came - begin,
        time_to_first_token_s=None if came is None or asked is None else came - asked,
        forked=report.forked,
    )


def _as_far_as_hooked(line: RankTimes, missing: Mapping[int, list[str]]) -> RankTimes:
    """Where compile ranges cannot be timed in this version, that none were seen says nothing."""
    unseen = any("CompilerManager.compile" in text for text in missing.get(line.rank, []))
    return line.model_copy(update={"ranges": None}) if unseen else line


def _artifacts(rank: dict[str, Any]) -> RankArtifacts:
    counters = rank["counters"]
    return RankArtifacts(
        rank=rank["rank"],
        saved=counters["num_compiled_artifacts_saved"],
        loaded=counters["num_compiled_artifacts_loaded"],
        compiled=counters["num_inductor_compiles"],
        held_before=rank.get("held_before"),
    )


def artifact_bytes(cache_root: Path) -> dict[int | None, int]:
    """Bytes of the files in a cache root: of each rank alone, and under ``None`` what the ranks share.

    Precompiled headers of the C++ compiler are no artifacts: they hold nothing of a model.
    """
    sizes: dict[int | None, int] = {None: 0}
    for folder, folders, files in os.walk(cache_root):
        folders[:] = [name for name in folders if name != HEADERS_FOLDER]
        found = _RANK_FOLDER.search(os.path.relpath(folder, cache_root))
        rank = int(found[1]) if found else None
        sizes[rank] = sizes.get(rank, 0) + sum(_size(Path(folder, file)) for file in files)
    return sizes


def _joined(here: Mapping[int | None, int], elsewhere: Mapping[int | None, int]) -> dict[int | None, int]:
    """A rank's are where it ran: here may lie copies of its keys. What ranks share is shared on each machine."""
    return {**here, **elsewhere, None: here.get(None, 0) + elsewhere.get(None, 0)}


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0


def _resources(rank: dict[str, Any], sizes: Mapping[int | None, int]) -> RankResources:
    counters = rank["counters"]
    # A start that loads the whole model compiled has not cut it into pieces.
    handed = counters.get("num_backend_compilations") or None
    return RankResources(
        rank=rank["rank"],
        peak_rss_bytes=rank.get("peak_rss_bytes"),
        device_peak_bytes=rank.get("device_peak_bytes"),
        artifact_bytes=sizes.get(rank["rank"]),
        pieces=counters.get("num_piecewise_capturable_graphs_seen") if handed else None,
        subgraphs=handed,
        unique_subgraphs=counters["num_compiled_artifacts_saved"] if handed else None,
    )


def _processes(
    recorded: Mapping[int, spans.ProcessSpans],
    missing: Mapping[int, list[str]],
    events: Sequence[RawEvent],
    begin: float,
) -> list[ProcessTimes]:
    """The main process first, then the ranks; helpers of theirs that wrote spans of their own last."""
    births = {event["pid"]: event for event in events if event["kind"] == "rank"}
    main = next((event["pid"] for event in events if event.get("rank") is None), None)
    pids = dict.fromkeys([main, *sorted(births, key=lambda pid: births[pid]["rank"]), *recorded])
    found = []
    for pid in (pid for pid in pids if pid is not None):
        birth = births.get(pid)
        own = recorded.get(pid, spans.ProcessSpans(pid, problems=["it wrote no spans"]))
        process = _process(own, [event for event in events if event["pid"] == pid], begin)
        if birth is not None:
            told = {"rank": birth["rank"], "started": birth["started"] - begin}
            process = process.model_copy(update=told | {"not_timed": missing.get(birth["rank"], [])})
        found.append(process)
    return found


def _process(own: spans.ProcessSpans, events: Sequence[RawEvent], begin: float) -> ProcessTimes:
    """``events``: those of the process itself, which may be both main process and rank."""
    long = [one for one in own.spans if _length(one) >= SHORTEST_S]
    kept = sorted(long, key=_length, reverse=True)[:MOST_SPANS]
    phases = [one for rank in {event.get("rank") for event in events} for one in segments(events, rank)]
    return ProcessTimes(
        pid=own.pid,
        rank=None,
        started=None,
        spans=[_span(one, begin) for one in sorted(kept, key=lambda one: (one.begin, one.depth))],
        phases=[_phase(one, begin) for one in sorted(phases, key=lambda one: one.begin)],
        left_out=len(own.spans) - len(kept),
        problems=own.problems,
    )


def _phase(found: Segment, begin: float) -> Span:
    return Span(name=found.name, begin=found.begin - begin, end=found.end - begin, depth=0, phase=found.name)


def _length(span: spans.Span) -> float:
    return float("inf") if span.end is None else span.end - span.begin


def _span(found: spans.Span, begin: float) -> Span:
    return Span(
        name=found.name,
        begin=found.begin - begin,
        end=None if found.end is None else found.end - begin,
        depth=found.depth,
        thread=found.thread,
        phase=found.phase,
    )
