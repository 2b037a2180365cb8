"""One portion of an arm on another machine, listened to in a thread of its own."""

from __future__ import annotations

import json
import os
import select
import threading
import time
from pathlib import Path

import ray

from workers.arms import PORTION_ENDED, Arm, RawEvent
from workers.machines import translate
from workers.machines.follower import Tell, Told
from workers.machines.followers import Follower, MachineLost
from workers.probes.spans import PREFIX
from workers.protocol import ArmSpec, Failure
from workers.watchdog.frames import Stack

BACK_PRESSURE = 8
"""So many things that a follower told may wait to be taken: pieces of files among them."""

LOOK_S = 0.05


class Listener(threading.Thread):
    """``spec``: the arm; ``portion``: what that machine has of it; ``how``: further arguments of its ``follow``.

    ``sizes``: bytes of what its ranks keep compiled, by rank, when it has told everything.
    """

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
        """Have the portion run; ``arm`` is told of it.

        Raises:
            MachineLost: if the machine does not answer.
        """
        self._arm = arm
        self._behind = self._follower.behind()
        self._pipe = os.open(arm.pipe, os.O_WRONLY | os.O_NONBLOCK)
        follow = self._follower.actor.follow.options(
            num_returns="streaming", _generator_backpressure_num_objects=BACK_PRESSURE
        )
        self._told = follow.remote(self._portion.model_dump_json(), *self._how)
        self.start()

    def ask_to_end(self) -> None:
        """Nobody needs the portion any more. Does not wait."""
        if not self._asked:
            self._asked = True
            self._follower.actor.end.remote(self._portion.folder)

    def conclude(self) -> None:
        """It was waited for long enough.

        Raises:
            MachineLost: if it is gone, or has not told everything.
            Exception: what else went wrong.
        """
        if self._error is not None:
            raise self._error
        if self.is_alive():
            raise self._follower.lost(TimeoutError("its ranks were not ended in time"))

    def stacks(self) -> list[Stack]:
        """Those of its processes; none if it does not answer."""
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
        except Exception as error:
            # Said where it is waited for.
            self._error = error
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
