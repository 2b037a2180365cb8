"""One arm seen from outside: start it, follow it, end it, and say how it ended."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers import environment
from workers.launch import ENGINE, NULL_ENGINE, launch
from workers.probes import spans
from workers.protocol import ArmReport, ArmSpec, Failure, Outcome, Role
from workers.wall_clock import WallClock
from workers.watchdog import Finding, Limits, Phases, examine
from workers.watchdog.faults import memory_fault
from workers.watchdog.frames import Stack

RawEvent = dict[str, Any]

LOG = "engine.log"
LOG_TAIL_LINES = 40
KNOWN_MODELS = "modelinfos"
"""Folder in vLLM's cache root with what it knows of model classes."""

PIPE_BYTES = 1 << 16
"""All that a pipe holds: what was sent before the supervisor's end is read in one go."""

MOST_PROCESSES = 1 << 22
"""Linux numbers no process higher. Those of other machines are: by so many for each machine."""

PORTION_ENDED = "portion-ended"
"""Kind of the event that the ranks of another machine are gone."""

_PIPE, _SUPERVISOR, _PROCESS = "pipe", "supervisor", "process"


@dataclass(frozen=True)
class _Sign:
    """Something is wrong with ``rank`` (``None``: the main process). ``message``: its own word, if it said one.

    ``at``: since when, in seconds of the monotonic clock.
    """

    at: float
    rank: int | None
    phase: str | None
    message: str | None


class Arm:
    """A supervised engine process.

    Use: iterate over :meth:`follow`, then read :meth:`report`. Leaving the ``with`` block ends whatever still runs.

    ``ranks``: those of this machine. Other machines may have more: their events come through the same pipe, and
    ``stacks_elsewhere`` gives the stacks of their processes.
    """

    def __init__(
        self, spec: ArmSpec, ranks: int, python: str, stacks_elsewhere: Callable[[], list[Stack]] = list
    ) -> None:
        self.spec = spec
        self.folder = Path(spec.folder)
        self.events: list[RawEvent] = []
        self.begin = self.end = 0.0
        self._ranks = ranks
        self._stacks_elsewhere = stacks_elsewhere
        self._cutting = threading.Lock()
        self._elsewhere: tuple[float, Failure] | None = None
        self._python = python
        self._watched: dict[int, int] = {}
        self._rank_of: dict[int, int | None] = {}
        self._first: _Sign | None = None
        self._timed_out = False
        self._phases = Phases()
        self._limits = Limits(spec.timeout_s, spec.phase_timeout_s, spec.silence_s)
        self._finding: Finding | None = None
        self._status: int | None = None
        self._buffer = b""

    def __enter__(self) -> Arm:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "spec.json").write_text(self.spec.model_dump_json(indent=1))
        (self.folder / "result.json").unlink(missing_ok=True)
        spans.forget(self.folder)
        self._take_over_known_models()
        pipe = self.pipe
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe)
        # Open for writing too: the pipe then never reads as ended between one process's leaving and the next one's.
        self._pipe = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        lifeline, self._lifeline = os.pipe()
        self._wall_clock = WallClock()
        with (self.folder / LOG).open("wb") as log:
            begun = launch(
                self._python,
                ["run", "--request", str(self.folder / "spec.json")],
                environment.for_arm(self.spec, self._ranks, str(pipe)),
                lifeline,
                log.fileno(),
                _zygote(self.spec),
                ENGINE if self.spec.null_engine is None else NULL_ENGINE,
            )
        self._process, self.begin, self._not_forked = begun.process, begun.at, begun.not_forked
        os.close(lifeline)
        return self

    def _take_over_known_models(self) -> None:
        if self.spec.known_models is None:
            return
        known = Path(self.spec.known_models) / KNOWN_MODELS
        if known.is_dir():
            shutil.copytree(known, Path(self.spec.cache_root) / KNOWN_MODELS, dirs_exist_ok=True)

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._process.wait()
        os.close(self._pipe)
        self.pipe.unlink(missing_ok=True)

    @property
    def supervisor(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def pipe(self) -> Path:
        """The named pipe of its events."""
        return self.folder / "events"

    def cut(self) -> None:
        """Close the lifeline: the supervisor kills the whole tree. May be called from any thread."""
        with self._cutting:
            if self._lifeline >= 0:
                os.close(self._lifeline)
                self._lifeline = -1

    def follow(self) -> Iterator[RawEvent]:
        """The events of all processes of the arm as they come, until its tree is gone."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipe, selectors.EVENT_READ, _PIPE)
            selector.register(self._process, selectors.EVENT_READ, _SUPERVISOR)
            try:
                ended = False
                while not ended:
                    ready = [key for key, _ in selector.select(self._time_left())]
                    fresh = self._read()
                    gone = [key.fd for key in ready if key.data == _PROCESS]
                    for descriptor in gone:
                        selector.unregister(descriptor)
                    pids = [self._watched[descriptor] for descriptor in gone]
                    self._note(fresh, pids + self._watch(fresh, selector))
                    if self._time_left() == 0.0:
                        self._give_up()
                    yield from fresh
                    ended = any(key.data == _SUPERVISOR for key in ready)
            finally:
                for descriptor in self._watched:
                    os.close(descriptor)
        self._status = self._process.wait()
        self.end = time.monotonic()

    def _time_left(self) -> float | None:
        """Seconds until the arm is killed; ``None`` when it has been."""
        if self._timed_out:
            return None
        return max(self._limits.next(self.begin, self._phases).at - time.monotonic(), 0.0)

    def _give_up(self) -> None:
        """Its time is up: see what each process does, then end them all."""
        self._timed_out = True
        expiry = self._limits.next(self.begin, self._phases)
        try:
            self._finding = examine(
                expiry,
                self._process.pid,
                self._phases,
                self._rank_of,
                self.folder,
                self.events,
                self._stacks_elsewhere,
            )
        finally:
            self.cut()

    def listen(self) -> None:
        """Take in what was sent and not read when its tree was gone: of other machines it may come later."""
        while self._read():
            continue

    def _read(self) -> list[RawEvent]:
        try:
            data = os.read(self._pipe, PIPE_BYTES)
        except BlockingIOError:
            return []
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        fresh = [event for event in map(_decode, lines) if event is not None]
        self.events += fresh
        if not self._timed_out:
            # What comes later says what the killing did.
            self._phases.note(fresh)
        return fresh

    def _watch(self, fresh: list[RawEvent], selector: selectors.BaseSelector) -> list[int]:
        """See when the processes that sent ``fresh`` go. Those that are gone already are returned.

        Of other machines it is told. A process that is both main process and rank goes by its rank.
        """
        news = dict.fromkeys(event["pid"] for event in fresh if event["pid"] not in self._rank_of)
        for event in fresh:
            if event.get("rank") is not None or event["pid"] not in self._rank_of:
                self._rank_of[event["pid"]] = event.get("rank")
        gone = []
        for pid in (pid for pid in news if pid < MOST_PROCESSES):
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                gone.append(pid)
                continue
            self._watched[descriptor] = pid
            selector.register(descriptor, selectors.EVENT_READ, _PROCESS)
        return gone

    def _note(self, fresh: list[RawEvent], gone: list[int]) -> None:
        """Remember the first sign of trouble.

        Of what is seen at once, a rank that went without a word comes before what others say of it. When the main
        process went too, it was first: the kernel takes its ranks along.
        """
        if any(event["kind"] == PORTION_ENDED for event in fresh):
            # What is left here would wait for the rest in vain.
            self.cut()
        if self._first is not None:
            return
        errors = [event for event in fresh if event["kind"] == "error"]
        spoke = {event["pid"] for event in errors}
        main_gone = any(self._rank_of[pid] is None for pid in gone)
        silent = [] if main_gone else [pid for pid in gone if pid not in spoke]
        if errors and not silent:
            first = errors[0]
            self._first = _Sign(first["t"], first.get("rank"), first.get("name"), first.get("message"))
        elif gone:
            rank = None if main_gone else self._rank_of[silent[0]]
            self._first = _Sign(time.monotonic(), rank, self._phases.of(rank), None)

    # --- how it ended -------------------------------------------------------------------------------------------

    @property
    def broke_off(self) -> float | None:
        """When the first sign of trouble was seen, on the monotonic clock; ``None`` when there was none."""
        return None if self._first is None else self._first.at

    def blame(self, at: float, failure: Failure) -> None:
        """Ranks of another machine died of ``failure`` at that time. The report tells what came first."""
        if self._elsewhere is None or at < self._elsewhere[0]:
            self._elsewhere = (at, failure)

    def result(self) -> dict[str, Any] | None:
        """What the engine wrote, or ``None`` when it did not get that far."""
        path = self.folder / "result.json"
        try:
            return dict(json.loads(path.read_text()))
        except (FileNotFoundError, json.JSONDecodeError):
            return None

    def report(self) -> ArmReport:
        """How the arm ended, after :meth:`follow` is through."""
        result = self.result()
        finished = result is not None and self._status == 0
        outcome = Outcome.OK if finished else Outcome.TIMED_OUT if self._timed_out else Outcome.CRASHED
        return ArmReport(
            role=self.spec.role,
            key=self.spec.key,
            outcome=outcome,
            wall_s=self.end - self.begin,
            folder=self.spec.folder,
            failure=None if outcome is Outcome.OK else self._failure(),
            peak_rss_bytes=max((rank["peak_rss_bytes"] for rank in result["ranks"]), default=None) if result else None,
            repeat=self.spec.repeat,
            clock_set_by_s=self._wall_clock.set_by(),
            forked=self._not_forked is None,
            not_forked=self._not_forked,
        )

    def _failure(self) -> Failure:
        first = self._first or _Sign(self.end, None, self._phases.of(None), None)
        log = tail(self.folder / LOG)
        if (found := self._finding) is None:
            if self._elsewhere is not None and (
                self._elsewhere[0] <= first.at or self._elsewhere[1].rank == first.rank
            ):
                return self._elsewhere[1]
            return Failure(
                phase=first.phase, rank=first.rank, message=first.message or self._message(first.rank), log_tail=log
            )
        own = first.message if first.rank == found.rank else None
        return Failure(
            phase=first.phase if own else found.phase,
            rank=found.rank,
            message=own or found.message(),
            log_tail=log,
            since_s=found.since_s,
            cause=found.cause,
            stacks=found.stacks,
            processes=list(found.processes),
        )

    def _message(self, rank: int | None) -> str:
        who = "the engine's main process" if rank is None else f"rank {rank}"
        said = f"{who} ended without a word (exit status of the engine: {self._status})"
        fault = memory_fault(self.folder / LOG)
        # All processes write into one log: it does not say which of them it was.
        return said if fault is None else f"{said}; the engine's log tells of {fault}"


def _zygote(spec: ArmSpec) -> int | None:
    """What a cold start saves a warm one has to find from a process that does not share its hash seed."""
    return int(spec.role is Role.WARM) if spec.preload else None


def _decode(line: bytes) -> RawEvent | None:
    """A line cut in the middle by a killed process is no event."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and {"kind", "t", "pid"} <= event.keys() else None


def tail(path: Path, lines: int = LOG_TAIL_LINES) -> list[str]:
    """The last lines of a log, without colour codes and over-long lines cut."""
    try:
        with path.open(errors="replace") as log:
            return [line.rstrip("\n")[:500] for line in deque(log, maxlen=lines)]
    except FileNotFoundError:
        return []
