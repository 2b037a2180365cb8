"""Seats in a real Ray: who is given which, what is kept, and what is given up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from store.samples import run_spec

from service.dispatch.cluster import cluster
from service.dispatch.execution import Halt, RunLost, RunStopped, execute
from service.dispatch.seat import Seat, Slots
from service.dispatch.seats import MOST_RUNS, Seats
from service.settings import Settings
from workers.protocol import Outcome

from .actors import actors
from .scripted import short_folder, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ONE = Slots(cpus=1, gpus=0)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    # The folder of all tests is made now, and not within one that goes with these.
    tmp_path_factory.getbasetemp()
    with short_folder() as folder:
        settings = Settings(home=folder / "home")
        with cluster(settings):
            yield settings


@pytest.fixture
def every() -> Slots:
    """All there is: two of them have no room beside each other."""
    return Slots(cpus=int(ray.cluster_resources()["CPU"]), gpus=0)


@pytest.fixture
def seats(settings: Settings) -> Iterator[Seats]:
    seats = Seats()
    yield seats
    seats.close()
    until(all_free)


def all_free() -> bool:
    return bool(ray.available_resources().get("CPU", 0) == ray.cluster_resources()["CPU"])


def take(seats: Seats, size: Slots, given_up: Callable[[], bool] = lambda: False) -> Seat:
    seat = seats.take(size, given_up)
    assert seat is not None
    return seat


def use(seat: Seat, settings: Settings) -> list[dict[str, Any]]:
    """A run without arms: its evidence alone."""
    return list(seat.run(run_spec("run").model_copy(update={"arms": []}).model_dump_json(), str(settings.python)))


def later(seats: Seats, size: Slots, given_up: Callable[[], bool] = lambda: False) -> Future[Seat | None]:
    """Somebody who waits for a seat; until then there is none."""
    executor = ThreadPoolExecutor(1)
    future = executor.submit(seats.take, size, given_up)
    executor.shutdown(wait=False)
    until(lambda: seats._waiting or future.done())
    return future


def test_a_seat_serves_run_after_run(seats: Seats, every: Slots, settings: Settings) -> None:
    first = take(seats, every)
    assert [event["kind"] for event in use(first, settings)] == ["evidence"]
    seats.give_back(first, reusable=True)
    again = take(seats, every)
    assert again is first
    assert len(actors()) == 1
    assert [event["kind"] for event in use(again, settings)] == ["evidence"]
    seats.give_back(again, reusable=True)


def test_one_that_cannot_be_used_again_frees_its_slots(seats: Seats, every: Slots, settings: Settings) -> None:
    spoilt = take(seats, every)
    use(spoilt, settings)
    seats.give_back(spoilt, reusable=False)
    until(lambda: not actors())
    fresh = take(seats, every)
    assert fresh is not spoilt
    seats.give_back(fresh, reusable=True)


def test_one_that_served_long_enough_is_replaced(seats: Seats, every: Slots) -> None:
    old = take(seats, every)
    old.runs = MOST_RUNS
    seats.give_back(old, reusable=True)
    seat = take(seats, every)
    assert seat is not old
    seats.give_back(seat, reusable=True)


def test_who_waits_is_given_the_seat_of_who_leaves(seats: Seats, every: Slots) -> None:
    held = take(seats, every)
    future = later(seats, every)
    assert not future.done()
    seats.give_back(held, reusable=True)
    assert future.result(60) is held
    seats.give_back(held, reusable=True)


def test_who_needs_another_size_has_unused_seats_given_up(seats: Seats, every: Slots) -> None:
    seats.give_back(take(seats, every), reusable=True)
    assert not all_free()
    small = take(seats, ONE)
    assert small.size == ONE
    seats.give_back(small, reusable=True)


def test_nor_is_a_seat_kept_for_nobody_while_another_size_is_waited_for(seats: Seats, every: Slots) -> None:
    small = take(seats, ONE)
    future = later(seats, every)
    seats.give_back(small, reusable=True)
    large = future.result(60)
    assert large is not None
    assert large.size == every
    seats.give_back(large, reusable=True)


def test_who_gives_up_has_none_and_leaves_nothing(seats: Seats, every: Slots) -> None:
    held = take(seats, every)
    enough = threading.Event()
    future = later(seats, every, enough.is_set)
    enough.set()
    assert future.result(60) is None
    seats.give_back(held, reusable=True)
    assert take(seats, every) is held, "nobody else was given it"
    seats.give_back(held, reusable=True)


def test_what_nobody_uses_is_given_up_after_a_while(seats: Seats, every: Slots) -> None:
    seats.give_back(take(seats, every), reusable=True)
    seats.give_up_unused(for_s=3600)
    assert not all_free()
    seats.give_up_unused(for_s=0)
    until(all_free)


def run(settings: Settings, seats: Seats, size: Slots, halt: Halt | None = None, **arm: Any) -> list[dict[str, Any]]:
    spec = run_spec("run")
    arms = [spec.arms[0].model_copy(update=arm)] if arm else []
    return list(execute(spec.model_copy(update={"arms": arms}), size, settings, seats, halt))


def test_an_actor_that_died_unused_costs_no_run(seats: Seats, every: Slots, settings: Settings) -> None:
    run(settings, seats, every)
    (actor,) = actors()
    actor.kill()
    assert [event["kind"] for event in run(settings, seats, every)] == ["evidence"]
    (other,) = actors()
    assert other.pid != actor.pid


def test_an_actor_that_dies_in_its_run_costs_it(seats: Seats, every: Slots, settings: Settings) -> None:
    run(settings, seats, every)
    seat = take(seats, every)
    seat.runs = 0
    seat.kill()
    seats.give_back(seat, reusable=True)
    with pytest.raises(RunLost, match="the actor of run run is gone"):
        run(settings, seats, every)


def test_a_run_that_failed_and_one_that_was_stopped_retire_their_actor(
    seats: Seats, every: Slots, settings: Settings, tmp_path: Path
) -> None:
    run(settings, seats, every)
    (first,) = actors()
    failed, *_ = [
        event
        for event in run(settings, seats, every, folder=str(tmp_path / "cold"), cache_root="/dev/null/cache")
        if event["kind"] == "arm-finished"
    ]
    assert failed["data"]["outcome"] == Outcome.CRASHED
    psutil.wait_procs([first], timeout=60)
    run(settings, seats, every)
    (second,) = actors()
    assert second.pid != first.pid
    halt = Halt()
    halt.stop()
    with pytest.raises(RunStopped):
        run(settings, seats, every, halt)
    psutil.wait_procs([second], timeout=60)
    assert actors() == []


def test_a_halt_that_comes_late_hits_no_other_run(seats: Seats, every: Slots, settings: Settings) -> None:
    halt = Halt()
    run(settings, seats, every, halt)
    (actor,) = actors()
    halt.stop()
    run(settings, seats, every)
    assert [one.pid for one in actors()] == [actor.pid]
