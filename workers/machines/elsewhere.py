"""The portions of an arm that other machines have: begun, listened to, ended. The engine that leads is on this one.

Their events go through the arm's own pipe and their files into the arm's folder, as if all ranks were here.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import ray

from workers.arms import PORTION_ENDED, Arm, RawEvent
from workers.machines import translate
from workers.machines.follower import Tell, Told
from workers.machines.followers import Follower, MachineLost, meet, portion_of
from workers.probes.spans import PREFIX
from workers.protocol import ArmSpec, EnvironmentSpec, Failure, Machine
from workers.watchdog.frames import Stack

BACK_PRESSURE = 8
"""So many things that a follower told may wait to be taken: pieces of files among them."""

ENDING_S = 120.0
"""How long a follower may take to end a portion and to hand over its files, before it counts as lost."""

LOOK_S = 0.05


class Elsewhere:
    """All of them; there may be none. Every machine has equally many of the arm's ``ranks``, in order.

    ``leading``: what this machine has. ``ranks``: how many of them each machine has. ``sizes``: bytes of what the ranks
    of the others keep compiled, by rank, once they have ended.

    Args:
        python: interpreter of the default engine environment there.
        environment: the one that is wanted in its place.
    """

    def __init__(
        self,
        spec: ArmSpec,
        ranks: int,
        followers: Sequence[Follower],
        python: str,
        environment: EnvironmentSpec | None,
    ) -> None:
        self.sizes: Counter[int | None] = Counter()
        self.ranks = ranks // (1 + len(followers))
        self._followers = followers
        portions = meet(1 + len(followers)) if followers else []
        self.leading = portion_of(spec, portions[0]) if portions else spec
        how = (self.ranks, python, None if environment is None else environment.model_dump_json())
        self._listeners = [
            _Listener(follower, spec, portion_of(spec, portions[follower.number]), how) for follower in followers
        ]

    def machines(self) -> list[Machine]:
        """Which ranks ran where; empty where all were here."""
        if not self._followers:
            return []
        here = (socket.gethostname(), ray.get_runtime_context().get_node_id())
        places = [here, *((follower.host, follower.node) for follower in self._followers)]
        return [
            Machine(host=host, node=node, ranks=list(range(number * self.ranks, (number + 1) * self.ranks)))
            for number, (host, node) in enumerate(places)
        ]

    @contextlib.contextmanager
    def following(self, arm: Arm) -> Iterator[None]:
        """Have them run inside the block; ``arm`` is told of them. What still runs in the end is ended."""
        try:
            for listener in self._listeners:
                listener.begin(arm)
            yield
        finally:
            for listener in self._listeners:
                listener.ask_to_end()

    def stacks(self) -> list[Stack]:
        """Those of their processes, as far as they can be had."""
        return [stack for listener in self._listeners for stack in listener.stacks()]

    def end(self, arm: Arm) -> None:
        """``arm`` has ended: have them end too, and all that they left be there.

        Raises:
            MachineLost: if one of them is gone, or does not come to an end.
            RayTaskError: if one made an error of its own.
        """
        for listener in self._listeners:
            listener.ask_to_end()
        deadline = time.monotonic() + ENDING_S
        while any(listener.is_alive() for listener in self._listeners) and time.monotonic() < deadline:
            arm.listen()
            for listener in self._listeners:
                listener.join(LOOK_S)
        arm.listen()
        for listener in self._listeners:
            listener.conclude()
            self.sizes.update(listener.sizes)


class _Listener(threading.Thread):
    """One of them. ``how``: further arguments of ``FollowerActor.follow``."""

    def __init__(self, follower: Follower, spec: ArmSpec, portion: ArmSpec, how: tuple[int, str, str | None]) -> None:
        super().__init__(name=f"machine-{follower.number}", daemon=True)
        self.sizes: dict[int | None, int] = {}
        self._follower = follower
        self._portion = portion
        self._how = how
        self._folder, self._cache = Path(spec.folder), Path(spec.cache_root)
        self._written: set[Path] = set()
        self._asked = False
        self._error: Exception | None = None
        self._behind = 0.0

    def begin(self, arm: Arm) -> None:
        self._arm = arm
        self._behind = self._follower.behind()
        self._pipe = os.open(arm.pipe, os.O_WRONLY | os.O_NONBLOCK)
        follow = self._follower.actor.follow.options(
            num_returns="streaming", _generator_backpressure_num_objects=BACK_PRESSURE
        )
        self._told = follow.remote(self._portion.model_dump_json(), *self._how)
        self.start()

    def ask_to_end(self) -> None:
        if not self._asked:
            self._asked = True
            self._follower.actor.end.remote(self._portion.folder)

    def conclude(self) -> None:
        if self._error is not None:
            raise self._error
        if self.is_alive():
            raise self._follower.lost(TimeoutError(f"its ranks were not ended within {ENDING_S:g} s"))

    def stacks(self) -> list[Stack]:
        try:
            found = self._follower.ask(self._follower.actor.stacks.remote())
        except MachineLost:
            return []
        return [translate.stack(plain, self._follower.number) for plain in found]

    def run(self) -> None:
        """Until it has told everything, or is gone."""
        try:
            for reference in self._told:
                self._take(ray.get(reference))
            for path in self._written:
                if path.name.startswith(PREFIX):
                    translate.spans(path, self._follower.number, self._behind)
        except ray.exceptions.RayTaskError as error:
            self._error = error
        except ray.exceptions.RayError as error:
            self._error = self._follower.lost(error)
        except OSError as error:
            self._error = MachineLost(f"what machine {self._follower.number} of the run left cannot be kept: {error}")
        finally:
            if self._error is not None:
                self._say_ended()
            os.close(self._pipe)

    def _take(self, told: Told) -> None:
        if told["kind"] == Tell.EVENT:
            event = translate.event(told["event"], self._follower.number, self._behind)
            if event is not None:
                self._say(event)
        elif told["kind"] == Tell.ENDED:
            self._arm.blame(told["at"] + self._behind, Failure.model_validate(told["failure"]))
            self._say_ended()
        elif told["kind"] == Tell.SIZES:
            self.sizes = dict(told["sizes"])
        else:
            self._write(told)

    def _write(self, told: Told) -> None:
        root = self._cache if told["cache"] else self._folder
        path = root / translate.name(told["name"], self._follower.number)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab" if path in self._written else "wb") as file:
            file.write(told["data"])
        self._written.add(path)

    def _say_ended(self) -> None:
        number = self._follower.number
        self._say({"kind": PORTION_ENDED, "t": time.monotonic(), "pid": translate.process(0, number), "name": number})

    def _say(self, event: RawEvent) -> None:
        """Into the arm's pipe, as its processes do. A line of at most ``PIPE_BUF`` bytes is written whole or not."""
        line = _line(event)
        if len(line) > select.PIPE_BUF:
            line = _line(event | {"message": str(event.get("message", ""))[:500]})
        while True:
            try:
                os.write(self._pipe, line)
            except BlockingIOError:
                select.select([], [self._pipe], [], LOOK_S)
            except BrokenPipeError:
                return
            else:
                return


def _line(event: RawEvent) -> bytes:
    return json.dumps(event).encode() + b"\n"
