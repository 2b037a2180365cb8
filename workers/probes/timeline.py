"""From the events of an arm's processes to the time line of each rank.

Every rank gets one line over the arm's whole outer wall time: the main process's phases until the rank exists, the
rank's own from then on, the main process's again while requests run and the engine shuts down. Phases never overlap,
so they and the unexplained rest add up to the wall time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.protocol import Phase, RankTimes

MAIN_PHASES = ("import", "config", "requests", "collect", "shutdown")
"""Phases of the main process in which the ranks have none of their own."""

COMPILE_PHASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "dynamo": ("bytecode_tracing", ()),
    "aot_autograd": ("create_aot_dispatcher_function", ("compile_fx_inner",)),
    "inductor_lowering": ("compile_fx_inner", ("GraphLowering.codegen", "PyCodeCache.load_by_key_path")),
    "inductor_codegen": ("GraphLowering.codegen", ()),
    "inductor_compile": ("PyCodeCache.load_by_key_path", ()),
}
"""Phase → PyTorch's timer, less the timers that run inside it. All of them run inside the worker's ``profile``."""

RawEvent = Mapping[str, Any]


@dataclass(frozen=True)
class Segment:
    name: str
    begin: float
    end: float


def rank_times(
    events: Sequence[RawEvent], begin: float, end: float, compile_seconds: Mapping[int, Mapping[str, float]]
) -> list[RankTimes]:
    """One line per rank that reported itself.

    Args:
        events: as the processes sent them; ``t`` in seconds of the monotonic clock.
        begin: when the arm was started, seen from outside.
        end: when its last process was gone, seen from outside.
        compile_seconds: per rank PyTorch's compile timers.
    """
    main = list(_segments(events, None))
    births = {event["rank"]: event for event in events if event["kind"] == "rank"}
    return [
        _line(rank, births[rank], events, main, begin, end, compile_seconds.get(rank, {})) for rank in sorted(births)
    ]


def _line(
    rank: int,
    birth: RawEvent,
    events: Sequence[RawEvent],
    main: list[Segment],
    begin: float,
    end: float,
    compile_seconds: Mapping[str, float],
) -> RankTimes:
    own = list(_segments(events, rank))
    line = [*_frame(events, begin, end), *_birth(birth, events, main), *own]
    line += [segment for segment in main if segment.name in MAIN_PHASES]
    phases: list[Phase] = []
    for name, seconds in _exclusive(line, begin, end):
        parts = _carve(seconds, compile_seconds) if name == "profile" else [Phase(name=name, s=seconds)]
        phases += parts
    total = end - begin
    return RankTimes(rank=rank, total_s=total, phases=phases, unaccounted_s=total - sum(phase.s for phase in phases))


def _segments(events: Iterable[RawEvent], rank: int | None) -> Iterable[Segment]:
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
    return [Segment("launch", begin, min(times)), Segment("exit", max(times), end)]


def _birth(birth: RawEvent, events: Sequence[RawEvent], main: list[Segment]) -> list[Segment]:
    """From the main process's decision to start ranks to the rank's first word."""
    start = next((event for event in events if event["kind"] == "phase-begin" and event["name"] == "start"), None)
    if start is None or birth["pid"] == start["pid"]:
        return []
    return [Segment("spawn", start["t"], birth["started"]), Segment("rank_import", birth["started"], birth["t"])]


def _exclusive(line: list[Segment], begin: float, end: float) -> list[tuple[str, float]]:
    """Seconds per segment in order of their begin; where two overlap, the later one begins where the earlier ends."""
    reached = begin
    seconds: list[tuple[str, float]] = []
    for segment in sorted(line, key=lambda segment: segment.begin):
        start, stop = max(segment.begin, reached), min(segment.end, end)
        if stop > start:
            seconds.append((segment.name, stop - start))
            reached = stop
    return seconds


def _carve(profile: float, compile_seconds: Mapping[str, float]) -> list[Phase]:
    """Split the worker's profiling run into the phases of compilation and the run itself."""
    phases = []
    left = profile
    for name, (timer, inside) in COMPILE_PHASES.items():
        seconds = compile_seconds.get(timer, 0.0) - sum(compile_seconds.get(other, 0.0) for other in inside)
        seconds = min(max(seconds, 0.0), left)
        if seconds > 0.0:
            phases.append(Phase(name=name, s=seconds))
            left -= seconds
    return [*phases, Phase(name="profile", s=left)]
