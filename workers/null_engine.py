"""``python -m workers.null_engine run --request FILE``: the null engine. It emits a recorded run in an engine's place.

Nothing is computed here. Events, spans, counters and answers are those of a real engine that ran at another time, see
``workers.recording``, and what it says of its environment is named ``null engine``. It is for measuring and breaking
what is around an engine, all of which stays real: supervisor, pipe, watchdog, actor, comparison, verdict.

Main process and ranks are real processes, so that each of them can be killed. When a rank goes, the main process ends,
as an engine does; the kernel ends the ranks of a main process that goes.

It imports next to nothing: beside what is measured it is to cost as little as it can.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workers.parent import die_with_parent

NAME = "null engine"
SUFFIX = ".json.gz"
EVENTS, SPANS = "SHARDPROOF_EVENTS", "SHARDPROOF_SPANS"
"""As in ``workers.environment``, whose imports take longer than all that is done here."""

EVENT, SPAN, BIRTH = "event", "span", "birth"

LOOK_S = 0.02

Line = tuple[float, str, Any]
"""When, in seconds since the recorded arm was started; what; and with which content. A birth's is a process."""

Json = dict[str, Any]


def read(path: Path) -> Json:
    """A file of a recording."""
    with gzip.open(path, "rt") as file:
        return dict(json.load(file))


def named(environment: Json) -> Json:
    """The environment of a recording, so that nobody takes what is emitted for a result."""
    return environment | {"vllm": f"{environment['vllm']} ({NAME})", "device": NAME}


class _Voice:
    """Of one process. What it says has the time at which it is said, and its own process id."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._started = time.monotonic()
        self._events = os.open(os.environ[EVENTS], os.O_WRONLY | os.O_NONBLOCK)
        os.set_blocking(self._events, True)
        spans = Path(os.environ[SPANS]) / f"spans-{self._pid}.jsonl"
        self._spans = os.open(spans, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def say(self, kind: str, content: Any) -> None:
        """``content``: of an event its fields; of a span begin or end, number of the thread, name and arguments."""
        now = time.monotonic()
        if kind == EVENT:
            own = {"started": self._started} if "started" in content else {}
            _write(self._events, {"t": now, "pid": self._pid} | content | own)
        else:
            mark, thread, *rest = content
            _write(self._spans, [mark, now, thread or self._pid, *rest])


def _write(descriptor: int, line: Any) -> None:
    os.write(descriptor, json.dumps(line).encode() + b"\n")


class _Playing:
    """The main process. ``speed``: so many times as fast as it was recorded.

    ``portion``: of the machines that run the engine this one; ``None`` where one has all ranks. On a machine that does
    not lead, the main process has nothing to say and does not end by itself.
    """

    def __init__(self, arm: Json, speed: float, portion: Json | None) -> None:
        self._others = [] if portion is None else _meet(portion)
        self._begin = time.monotonic()
        self._speed = speed
        main, *ranks = arm["processes"]
        number, count = (0, 1) if portion is None else (portion["number"], portion["count"])
        each = len(ranks) // count
        self._leads = number == 0
        self._ranks = ranks[number * each : (number + 1) * each]
        births = [(rank["lines"][0][0], BIRTH, rank) for rank in self._ranks]
        own = main["lines"] if self._leads else []
        self._lines: list[Line] = sorted([*map(tuple, own), *births], key=lambda line: line[0])
        self._seconds: float = arm["seconds"]
        self._quiet = max((rank["lines"][-1][0] for rank in self._ranks), default=0.0)
        self._alive: list[int] = []
        self._through, self._playing = os.pipe()

    def play(self) -> bool:
        """Until all is said; ``False`` as soon as a rank is gone."""
        voice = _Voice()
        for at, kind, content in self._lines:
            if at > self._quiet:
                self._wait_for_ranks()
            if self._a_rank_goes_before(at):
                return False
            if kind == BIRTH:
                self._fork(content)
            else:
                voice.say(kind, content)
        self._wait_for_ranks()
        return not self._a_rank_goes_before(self._seconds if self._leads else math.inf)

    def _wait_for_ranks(self) -> None:
        """What came after the last word of a rank is said after it, however fast it goes and wherever the rank is."""
        if self._playing < 0:
            return
        os.close(self._playing)
        self._playing = -1
        os.read(self._through, 1)
        for other in self._others:
            if self._leads:
                other.recv(1)
            else:
                other.send(b".")

    def _a_rank_goes_before(self, at: float) -> bool:
        left = None if at == math.inf else max(self._begin + at / self._speed - time.monotonic(), 0.0)
        return bool(select.select(self._alive, [], [], left)[0])

    def _fork(self, rank: Json) -> None:
        pid = os.fork()
        if pid:
            self._alive.append(os.pidfd_open(pid))
            return
        die_with_parent()
        voice = _Voice()
        for at, kind, content in rank["lines"]:
            time.sleep(max(self._begin + at / self._speed - time.monotonic(), 0.0))
            voice.say(kind, content)
        os.close(self._playing)
        while True:
            signal.pause()


def _meet(portion: Json) -> list[socket.socket]:
    """As the ranks of an engine do before anything else: the machine that leads with each other, they with it."""
    address = (portion["address"], portion["port"])
    if portion["number"] == 0:
        with socket.create_server(address) as server:
            return [server.accept()[0] for _ in range(portion["count"] - 1)]
    while True:
        try:
            return [socket.create_connection(address)]
        except ConnectionRefusedError:
            time.sleep(LOOK_S)


def _leave(arm: Json, spec: Json) -> None:
    """What the recorded arm left: the keys of what it compiled in its cache root, and its result."""
    for name, text in arm["cache"].items():
        path = Path(spec["cache_root"]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    result = arm["result"] | {"environment": named(arm["result"]["environment"])}
    (Path(spec["folder"]) / "result.json").write_text(json.dumps(result))


def main(arguments: Sequence[str]) -> int:
    spec = json.loads(Path(arguments[arguments.index("--request") + 1]).read_bytes())
    asked = spec["null_engine"]
    path = Path(asked["folder"]) / f"{spec['role']}{SUFFIX}"
    if not path.exists():
        print(f"{NAME}: {path} is not there: no {spec['role']} arm was recorded", flush=True)
        return 2
    arm = read(path)
    print(f"{NAME}: emits {path}, {asked['speed']:g} times as fast as it was recorded", flush=True)
    if not _Playing(arm, asked["speed"], spec.get("portion")).play():
        print(f"{NAME}: a rank is gone", flush=True)
        return 1
    _leave(arm, spec)
    return 0


if __name__ == "__main__":
    # As an engine: all is delivered, and the supervisor ends the ranks at once.
    os._exit(main(sys.argv))
