"""Seats: slots in the cluster, each with an actor that serves run after run. A process for each run would cost more
than most of what a run without an engine does.

A run takes a seat of its size that nobody uses, or waits for room of its own and for a seat that another run leaves,
whichever comes first. Who needs another size has the unused ones given up: slots are never held against a run.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import ray

from service.dispatch.seat import Seat, Slots, remove, reserve

LOOK_S = 0.5
"""How often a run that has no seat yet looks whether it was stopped."""

UNUSED_S = 5.0
"""So long a seat is kept that nobody uses: from one run of a sweep to the next, and little longer."""

MOST_RUNS = 200
"""Then another process takes its place: what a process loses in each run stays bounded."""


class NoRoom(RuntimeError):
    """The cluster did not reserve what a run needs, and does not say that it will."""


@dataclass(eq=False)
class _Waiter:
    """A run without a seat. ``woken``: it has a ``seat`` or ``room`` for one, or there is neither to be had."""

    size: Slots
    woken: threading.Event = field(default_factory=threading.Event)
    seat: Seat | None = None
    room: bool = False


class Seats:
    """All seats of a controller. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unused: list[Seat] = []
        self._waiting: list[_Waiter] = []
        self._closed = False

    def take(self, size: Slots, given_up: Callable[[], bool]) -> Seat | None:
        """A seat of that size as soon as there is one; ``None`` when ``given_up`` says that it is not wanted any more.

        Raises:
            RayError, NoRoom: when the cluster is gone.
        """
        waiter = _Waiter(size)
        with self._lock:
            if (seat := self._unused_of(size)) is not None:
                return seat
            others, self._unused = self._unused, []
            self._waiting.append(waiter)
        for other in others:
            other.give_up()
        return self._wait(waiter, given_up)

    def give_back(self, seat: Seat, reusable: bool) -> None:
        """The run is over. ``reusable``: its actor can serve another one."""
        with self._lock:
            if reusable and seat.runs < MOST_RUNS and not self._closed:
                heir = next((waiter for waiter in self._waiting if waiter.size == seat.size), None)
                if heir is not None:
                    self._waiting.remove(heir)
                    heir.seat = seat
                    heir.woken.set()
                    return
                if not self._waiting:
                    seat.unused_since = time.monotonic()
                    self._unused.append(seat)
                    return
        seat.give_up()

    def give_up_unused(self, for_s: float = 0.0) -> None:
        """Give up the seats that nobody has used for so many seconds."""
        latest = time.monotonic() - for_s
        with self._lock:
            dropped = [seat for seat in self._unused if seat.unused_since <= latest]
            self._unused = [seat for seat in self._unused if seat.unused_since > latest]
        for seat in dropped:
            seat.give_up()

    def close(self) -> None:
        """Keep no seat any longer than its run."""
        self._closed = True
        self.give_up_unused()

    def _unused_of(self, size: Slots) -> Seat | None:
        """The one that was used last: the others are given up the sooner."""
        for seat in reversed(self._unused):
            if seat.size == size:
                self._unused.remove(seat)
                return seat
        return None

    def _wait(self, waiter: _Waiter, given_up: Callable[[], bool]) -> Seat | None:
        try:
            group = reserve(waiter.size)
        except ray.exceptions.RayError:
            self._leave(waiter)
            raise
        try:
            # Kept until the end: nobody would be told by a reference that is gone.
            ready = group.ready()
            ready.future().add_done_callback(functools.partial(_tell, waiter))
            while not waiter.woken.wait(LOOK_S) and not given_up():
                continue
        finally:
            self._leave(waiter)
            if waiter.seat is None and waiter.room and not given_up():
                waiter.seat = Seat(waiter.size, group)
            else:
                remove(group)
        if waiter.seat is None and not given_up():
            raise NoRoom("its slots could not be reserved")
        return waiter.seat

    def _leave(self, waiter: _Waiter) -> None:
        """From here on nobody leaves it a seat."""
        with self._lock:
            if waiter in self._waiting:
                self._waiting.remove(waiter)


def _tell(waiter: _Waiter, done: Future[Any]) -> None:
    waiter.room = done.exception() is None
    waiter.woken.set()
