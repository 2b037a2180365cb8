"""From the events and spans of an arm's processes to the time line of each rank.

Every rank gets one line over the arm's whole outer wall time: the main process's phases until the rank exists, the
rank's own from then on, the main process's again while requests run and the engine shuts down. Of what is inside each
other the innermost counts, so phases never overlap, and with the unexplained rest they add up to the wall time. All
times are those of the monotonic clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from workers.probes.span_phases import OUR_PASS, VLLM_PASS, WAIT
from workers.probes.spans import ProcessSpans, Span
from workers.protocol import Part, Phase, RankTimes

MAIN_PHASES = ("import", "config", "requests", "collect", "shutdown")
"""Phases of the main process in which the ranks have none of their own."""

RawEvent = Mapping[str, Any]
Spans = Mapping[int, ProcessSpans]
"""By process id."""

# What a rank does itself goes before what the main process does, and that before its waiting for the main process.
_WAITING, _MAIN, _OWN = range(3)


@dataclass(frozen=True)
class Segment:
    name: str
    begin: float
    end: float
    layer: int = _OWN


def rank_times(events: Sequence[RawEvent], begin: float, end: float, spans: Spans) -> list[RankTimes]:
    """One line per rank that reported itself.

    Args:
        events: as the processes sent them; ``t`` in seconds of the monotonic clock.
        begin: when the arm was started, seen from outside.
        end: when its last process was gone, seen from outside.
        spans: of each process, see ``workers.probes.spans``.
    """
    main = list(segments(events, None))
    births = {event["rank"]: event for event in events if event["kind"] == "rank"}
    return [_line(births[rank], events, main, begin, end, spans) for rank in sorted(births)]


def _line(
    birth: RawEvent, events: Sequence[RawEvent], main: list[Segment], begin: float, end: float, spans: Spans
) -> RankTimes:
    rank = birth["rank"]
    own = spans.get(birth["pid"])
    line = [*_frame(events, begin, end), *_birth(birth, events, own), *_first_token(main, events)]
    line += [_on(segment, _MAIN) for segment in main if segment.name in MAIN_PHASES]
    line += segments(events, rank)
    line += _of_spans(own.spans if own else (), end)
    phases: dict[str, Phase] = {}
    for name, start, stop in _exclusive(line, begin, end):
        known = phases.get(name) or Phase(name=name, s=0.0, begin=start - begin)
        phases[name] = known.model_copy(update={"s": known.s + (stop - start)})
    total = end - begin
    return RankTimes(
        rank=rank,
        total_s=total,
        phases=list(phases.values()),
        unaccounted_s=total - sum(phase.s for phase in phases.values()),
        passes=None if own is None else _passes(own.spans, end),
        ranges=None if own is None else _ranges(own.spans, end),
    )


def _on(segment: Segment, layer: int) -> Segment:
    return Segment(segment.name, segment.begin, segment.end, layer)


def segments(events: Iterable[RawEvent], rank: int | None) -> Iterable[Segment]:
    """Begin and end of each phase of ``rank`` (``None``: the main process), paired by name."""
    begun: dict[str, float] = {}
    for event in events:
        if event.get("rank") != rank:
            continue
        if event["kind"] == "phase-begin":
            begun[event["name"]] = event["t"]
        elif event["kind"] == "phase-end" and event["name"] in begun:
            yield Segment(event["name"], begun.pop(event["name"]), event["t"])


def _frame(events: Sequence[RawEvent], begin: float, end: float) -> list[Segment]:
    """Before the first word of the main process, and after its last."""
    if not events:
        return []
    times = [event["t"] for event in events]
    return [Segment("launch", begin, min(times), _MAIN), Segment("exit", max(times), end, _MAIN)]


def _birth(birth: RawEvent, events: Sequence[RawEvent], own: ProcessSpans | None) -> Iterator[Segment]:
    """From the main process's decision to start ranks to the rank's first word.

    Its imports are done where its first span begins: vLLM then loads its plugins, and ours is one of them.
    """
    start = next((event for event in events if event["kind"] == "phase-begin" and event["name"] == "start"), None)
    if start is None or birth["pid"] == start["pid"]:
        return
    yield Segment("spawn", start["t"], birth["started"], _MAIN)
    imported = min([birth["t"], *(span.begin for span in own.spans[:1])] if own else [birth["t"]])
    yield Segment("rank_import", birth["started"], imported, _MAIN)
    yield Segment("rank_init", max(imported, birth["started"]), birth["t"], _MAIN)


def _first_token(main: list[Segment], events: Sequence[RawEvent]) -> Iterator[Segment]:
    """Of the requests, the time until the first token came."""
    requests = next((segment for segment in main if segment.name == "requests"), None)
    came = first_token(events)
    if requests is not None and came is not None:
        yield Segment("first_token", requests.begin, came, _MAIN)


def first_token(events: Sequence[RawEvent]) -> float | None:
    """When the engine's first token came, on the monotonic clock; ``None`` where none was seen."""
    return next((event["t"] for event in events if event["kind"] == "first-token"), None)


def _of_spans(spans: Iterable[Span], end: float) -> Iterator[Segment]:
    """A span without an end lasted until the process was gone."""
    for span in spans:
        if span.phase is not None:
            layer = _WAITING if span.phase == WAIT else _OWN
            yield Segment(span.phase, span.begin, end if span.end is None else span.end, layer)


def _exclusive(line: Iterable[Segment], begin: float, end: float) -> Iterator[tuple[str, float, float]]:
    """Who has the time, piece by piece: the highest layer, of one layer what began last, of those what ends first."""
    waiting = sorted(
        (max(part.begin, begin), -part.layer, min(part.end, end), order, part.name) for order, part in enumerate(line)
    )
    waiting = [part for part in waiting if part[0] < part[2]]
    bounds = sorted({time for part in waiting for time in (part[0], part[2])})
    active: list[tuple[int, float, float, int, str]] = []
    reached = 0
    for left, right in pairwise(bounds):
        while reached < len(waiting) and waiting[reached][0] <= left:
            start, layer, stop, order, name = waiting[reached]
            heapq.heappush(active, (layer, -start, stop, -order, name))
            reached += 1
        while active and active[0][2] <= left:
            heapq.heappop(active)
        if active:
            yield active[0][4], left, right


def _passes(spans: Iterable[Span], end: float) -> list[Part]:
    """vLLM's passes and ours, each by its name, over all graphs of the rank."""
    return _parts(((span.name, span) for span in spans if span.name.startswith((VLLM_PASS, OUR_PASS))), end)


def _ranges(spans: Iterable[Span], end: float) -> list[Part]:
    return _parts(
        ((str(span.arguments.get("range", "?")), span) for span in spans if span.name == "compile_range"), end
    )


def _parts(named: Iterable[tuple[str, Span]], end: float) -> list[Part]:
    found: dict[str, Part] = {}
    for name, span in named:
        seconds = max((end if span.end is None else span.end) - span.begin, 0.0)
        known = found.get(name) or Part(name=name, s=0.0, calls=0)
        found[name] = Part(name=name, s=known.s + seconds, calls=known.calls + 1)
    return list(found.values())
