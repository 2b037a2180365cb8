"""On expiry: take the stacks, find who holds the others up, write down what is known."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.protocol import StuckProcess
from workers.watchdog.causes import Reading, read
from workers.watchdog.frames import Stack
from workers.watchdog.limits import Expiry, Limit
from workers.watchdog.phases import Phases, Rank
from workers.watchdog.stacks import take

STACKS = "stacks.txt"
EVENTS = "events.jsonl"


@dataclass(frozen=True)
class Finding:
    """``rank`` holds the engine up, in ``phase``, since ``since_s`` seconds (``None``: in no phase of its own).

    ``cause``: what it does there, in words; ``None`` when it has no stack. ``stacks``: the file with all of them.
    """

    expiry: Expiry
    rank: Rank
    phase: str | None
    since_s: float | None
    cause: str | None
    stacks: str | None
    processes: tuple[StuckProcess, ...]

    def message(self) -> str:
        """Which limit was reached, in words."""
        who, seconds = _name(self.rank), f"{self.expiry.seconds:g} s"
        if self.expiry.limit is Limit.SILENCE:
            said = f"nothing was heard of the engine for {seconds}"
        elif self.expiry.limit is Limit.PHASE and self.expiry.rank != self.rank:
            said = f"{_name(self.expiry.rank)} did not come to the end of its phase within {seconds}, held up by {who}"
        else:
            what = "the end of its phase" if self.expiry.limit is Limit.PHASE else "an end"
            said = f"{who} did not come to {what} within {seconds}"
        return f"{said}; the engine's processes were killed"


def _name(rank: Rank) -> str:
    return "the engine's main process" if rank is None else f"rank {rank}"


def examine(
    expiry: Expiry,
    supervisor: int,
    phases: Phases,
    ranks: Mapping[int, Rank],
    folder: Path,
    events: Sequence[Mapping[str, Any]],
    elsewhere: Callable[[], list[Stack]] = list,
) -> Finding:
    """Look at the tree below ``supervisor`` before it is killed, and at what ``elsewhere`` tells of other machines.

    ``ranks``: process id → rank of the processes that have spoken. The stacks and the events go into ``folder``; a
    folder that cannot be written to costs these files and nothing else.
    """
    stacks = [*take(supervisor), *elsewhere()]
    now = time.monotonic()
    readings = {stack.pid: read(stack, stacks) for stack in stacks}
    by_rank = {ranks[pid]: reading for pid, reading in readings.items() if pid in ranks}
    rank = held_up_by(by_rank, phases)
    since, reading = phases.since(rank), by_rank.get(rank)
    processes = tuple(_processes(stacks, readings, ranks, phases, now))
    _write(folder / EVENTS, "".join(f"{json.dumps(event)}\n" for event in events))
    return Finding(
        expiry=expiry,
        rank=rank,
        phase=phases.of(rank),
        since_s=None if since is None else now - since,
        cause=None if reading is None or reading.where is None else str(reading),
        stacks=_write(folder / STACKS, "\n".join(map(_text, processes, stacks))) if stacks else None,
        processes=processes,
    )


def held_up_by(readings: Mapping[Rank, Reading], phases: Phases) -> Rank:
    """The rank that the others wait for; ``None`` means the main process.

    Where some ranks wait for others it is one of those that do not. Where all wait it is the main process, unless that
    waits as well. Where nothing tells, it is the rank that is longest in a phase it has not ended.
    """
    waiting = {rank for rank, reading in readings.items() if reading.waits}
    busy = phases.ranks - waiting
    all_wait = bool(phases.ranks) and not busy
    if all_wait and None not in waiting and None in readings:
        return None
    candidates = phases.ranks if all_wait else busy
    stuck = {rank: since for rank in candidates if (since := phases.since(rank)) is not None}
    if stuck:
        return min(stuck, key=lambda rank: stuck[rank])
    return min(busy) if busy and waiting & phases.ranks else None


def _processes(
    stacks: Iterable[Stack],
    readings: Mapping[int, Reading],
    ranks: Mapping[int, Rank],
    phases: Phases,
    now: float,
) -> Iterable[StuckProcess]:
    for stack in stacks:
        rank = ranks.get(stack.pid)
        known = stack.pid in ranks
        since = phases.since(rank) if known else None
        yield StuckProcess(
            pid=stack.pid,
            rank=rank,
            main=known and rank is None,
            phase=phases.of(rank) if known else None,
            s=None if since is None else now - since,
            doing=stack.problem or str(readings[stack.pid]),
        )


def _text(process: StuckProcess, stack: Stack) -> str:
    who = "main process" if process.main else "helper" if process.rank is None else f"rank {process.rank}"
    phase = "" if process.phase is None else f", phase {process.phase}"
    lines = [f"{who}{phase}, process {stack.pid}: {process.doing}", f"  {stack.command[:500]}"]
    for thread in stack.threads:
        lines += [f"  thread {thread.name}{' (main)' if thread.main else ''}, innermost first"]
        lines += [f"    {frame}" for frame in thread.frames]
    return "\n".join(lines) + "\n"


def _write(path: Path, text: str) -> str | None:
    with contextlib.suppress(OSError):
        path.write_text(text)
        return str(path)
    return None
