"""All processes of an arm as one trace in Chrome's format, which Perfetto and ``chrome://tracing`` load.

Times are microseconds since the arm was started. Each rank is a process of the trace, and so is the main process. Their
first row holds the phases, the next ones the spans of each thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workers.probes.spans import ProcessSpans, Span
from workers.probes.timeline import RawEvent

Trace = dict[str, Any]

_PHASES = 0
"""The row of the phases; thread ``n`` has row ``n + 1``."""


def chrome_trace(
    events: Sequence[RawEvent], spans: Mapping[int, ProcessSpans], begin: float, end: float
) -> dict[str, list[Trace]]:
    """Args as those of ``workers.probes.timeline.rank_times``. What was not ended is drawn to the arm's end."""
    births = {event["pid"]: event["rank"] for event in events if event["kind"] == "rank"}
    pids = dict.fromkeys([*(event["pid"] for event in events), *spans])
    found: list[Trace] = []
    for order, pid in enumerate(sorted(pids, key=lambda pid: births.get(pid, -1))):
        own = [event for event in events if event["pid"] == pid]
        found += _names(pid, _name(pid, births, own), order)
        found += _phases(pid, own, begin, end)
        found += _spans(pid, spans[pid].spans if pid in spans else (), begin, end)
    return {"traceEvents": found}


def _name(pid: int, births: Mapping[int, int], own: Sequence[RawEvent]) -> str:
    if pid in births:
        return f"rank {births[pid]}"
    return "main process" if own else "helper"


def _names(pid: int, name: str, order: int) -> Iterator[Trace]:
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": order}}
    yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": _PHASES, "args": {"name": "phases"}}


def _phases(pid: int, own: Sequence[RawEvent], begin: float, end: float) -> Iterator[Trace]:
    open_phases: dict[tuple[Any, str], float] = {}
    for event in own:
        if event["kind"] == "phase-begin":
            open_phases[event.get("rank"), event["name"]] = event["t"]
        elif event["kind"] == "phase-end":
            started = open_phases.pop((event.get("rank"), event["name"]), None)
            if started is not None:
                yield _complete(pid, _PHASES, event["name"], started - begin, event["t"] - begin, {})
        elif event["kind"] == "first-token":
            at = _us(event["t"] - begin)
            yield {"ph": "i", "s": "g", "name": "first token", "pid": pid, "tid": _PHASES, "ts": at}
        elif event["kind"] == "rank":
            yield _complete(pid, _PHASES, "rank_import", event["started"] - begin, event["t"] - begin, {})
    for (_, name), started in open_phases.items():
        yield _complete(pid, _PHASES, name, started - begin, end - begin, {"ended": False})


def _spans(pid: int, spans: Sequence[Span], begin: float, end: float) -> Iterator[Trace]:
    for thread in sorted({span.thread for span in spans}):
        name = "main thread" if thread == 0 else f"thread {thread}"
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": thread + 1, "args": {"name": name}}
    for span in spans:
        arguments = dict(span.arguments) | ({"phase": span.phase} if span.phase else {})
        if span.end is None:
            arguments["ended"] = False
        until = end if span.end is None else span.end
        yield _complete(pid, span.thread + 1, span.name, span.begin - begin, until - begin, arguments)


def _complete(pid: int, row: int, name: str, start: float, stop: float, arguments: dict[str, Any]) -> Trace:
    length = max(stop - start, 0.0)
    return {"ph": "X", "pid": pid, "tid": row, "name": name, "ts": _us(start), "dur": _us(length), "args": arguments}


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)
