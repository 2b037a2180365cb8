"""One run on the cluster: in a seat, followed from here, ended from here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import ray

from service.dispatch.seat import Seat, Slots
from service.dispatch.seats import NoRoom, Seats
from service.settings import Settings
from workers.machines.followers import MachineLost
from workers.protocol import Outcome, RunSpec


class RunLost(RuntimeError):
    """The run's actor or its node is gone: infrastructure, not the engine."""


class RunBroken(RuntimeError):
    """An error in the actor's own code, which another node would make too."""


class RunStopped(RuntimeError):
    """The run was ended from outside, by its :class:`Halt`."""


class Halt:
    """Ends a run from another thread, at whatever point it is. ``placed``: it has its slots."""

    def __init__(self) -> None:
        self.asked = False
        self.placed = False
        self._lock = threading.Lock()
        self._seat: Seat | None = None

    def stop(self) -> None:
        """Kill the actor; its engines die with it. A run that waits for slots gives up."""
        with self._lock:
            self.asked = True
            if self._seat is not None:
                self._seat.kill()

    def attach(self, seat: Seat) -> None:
        """The actor of ``seat`` is what is to be killed."""
        with self._lock:
            self._seat = seat
            if self.asked:
                seat.kill()

    def detach(self) -> bool:
        """The seat is not the run's any more and stays as it is; ``False`` when its actor was killed."""
        with self._lock:
            self._seat = None
            return not self.asked


def execute(
    spec: RunSpec,
    needed: Slots,
    settings: Settings,
    seats: Seats,
    halt: Halt | None = None,
    placed: Callable[[], None] = lambda: None,
) -> Iterator[dict[str, Any]]:
    """Run ``spec`` in one of ``seats`` and pass on its events. Closing the iterator kills the actor.

    ``placed`` is called when it has its slots.

    Raises:
        RunLost: when the actor dies, or its node.
        RunBroken: when it makes an error.
        RunStopped: when ``halt`` was asked to stop it.
    """
    halt = halt or Halt()
    try:
        yield from _execute(spec, _seated(spec, needed, seats, halt), settings, seats, halt, placed)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, MachineLost):
            raise _gone(spec, halt, error.cause) from error
        raise RunBroken(f"the actor of run {spec.run_id} made an error: {error.cause!r}") from error
    except (ray.exceptions.RayError, NoRoom) as error:
        raise _gone(spec, halt, error) from error


def _gone(spec: RunSpec, halt: Halt, error: Exception) -> RunStopped | RunLost:
    """What it means that the actor of a run is not there any more, or one of several."""
    if halt.asked:
        return RunStopped(f"run {spec.run_id} was stopped")
    if isinstance(error, MachineLost):
        return RunLost(f"run {spec.run_id} lost a part of its machines: {error}")
    return RunLost(f"the actor of run {spec.run_id} is gone: {_brief(error)}")


def _seated(spec: RunSpec, needed: Slots, seats: Seats, halt: Halt) -> Seat:
    """A seat whose actor is there: one that died while nobody used it costs no run."""
    while (seat := seats.take(needed, lambda: halt.asked)) is not None:
        halt.attach(seat)
        # An actor that is killed may answer for a moment yet.
        if seat.answers() and not halt.asked:
            return seat
        halt.detach()
        seat.give_up()
        if halt.asked:
            break
    raise RunStopped(f"run {spec.run_id} was stopped before it had slots")


def _execute(
    spec: RunSpec, seat: Seat, settings: Settings, seats: Seats, halt: Halt, placed: Callable[[], None]
) -> Iterator[dict[str, Any]]:
    through = False
    try:
        halt.placed = True
        placed()
        sound = True
        for event in seat.run(spec.model_dump_json(), str(settings.python)):
            sound = sound and not _of_failure(event)
            yield event
        through = sound
    finally:
        mine = halt.detach()
        seats.give_back(seat, reusable=through and mine)


def _of_failure(event: dict[str, Any]) -> bool:
    """An engine was killed or broke off. Its actor has seen to it, and serves no other run."""
    return bool(event["kind"] == "arm-finished" and event["data"]["outcome"] != Outcome.OK)


def _brief(error: Exception) -> str:
    """The first lines of Ray's story."""
    return " ".join(line.strip() for line in str(error).splitlines()[:6] if line.strip())
