"""Of several controllers on one database one leads, and another takes over when it is gone. Real databases and rows."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.dispatch.leadership import BEAT_S, LEASE_S, TRUST_S, Elected
from service.store import Store, open_store, repositories
from service.store.trouble import StoreUnavailable, Trouble

ELSEWHERE = ("not-{host}:1:1.00", "other-{host}:2:2.00")
"""Controllers on machines that cannot be asked whether they are alive."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'shardproof.db'}")
    yield store
    store.close()


class Clock:
    """Stands still until it is put forward."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def controllers(store: Store) -> tuple[Elected, Elected, Clock, Clock]:
    """Two, each with a clock of its own that has nothing to do with the other's."""
    one, other = (name.format(host=socket.gethostname()) for name in ELSEWHERE)
    clocks = Clock(1000.0), Clock(5.0)
    return Elected(store, one, clock=clocks[0]), Elected(store, other, clock=clocks[1]), *clocks


@contextlib.contextmanager
def away(monkeypatch: pytest.MonkeyPatch, query: str) -> Iterator[None]:
    """Inside the block the database does not answer this query."""

    def no_answer(*_: object) -> None:
        raise StoreUnavailable(Trouble.AWAY, "of this test", "no answer")

    with monkeypatch.context() as patched:
        patched.setattr(repositories, query, no_answer)
        yield


def test_the_first_one_leads_as_long_as_it_says_so(store: Store) -> None:
    one, other, *clocks = controllers(store)
    for _ in range(60):
        assert one.held()
        assert not other.held()
        for clock in clocks:
            clock.now += 1.0


def test_another_takes_over_when_nothing_is_heard_and_the_first_steps_down(store: Store) -> None:
    one, other, mine, others = controllers(store)
    assert one.held()
    assert not other.held()
    others.now += LEASE_S - 1
    assert not other.held()
    others.now += 1
    assert other.held()
    mine.now += BEAT_S
    assert not one.held(), "it has to see that it is not the leader any more"
    assert other.held()


def test_who_cannot_say_so_steps_down_before_another_takes_over(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, mine, others = controllers(store)
    assert one.held()
    assert not other.held()
    with away(monkeypatch, "lead"):
        mine.now += TRUST_S
        assert one.held()
        mine.now += 0.1
        assert not one.held()
    assert TRUST_S < LEASE_S
    others.now += LEASE_S
    assert other.held()


def test_a_database_that_was_away_is_no_leader_that_is_dead(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, mine, others = controllers(store)
    assert one.held()
    assert not other.held()
    with away(monkeypatch, "get_leader"):
        others.now += LEASE_S - 1
        assert not other.held()
    others.now += 2
    assert not other.held(), "it looks again for the whole time"
    mine.now += BEAT_S
    assert one.held()


def test_who_resigns_is_followed_at_once(store: Store) -> None:
    one, other, *_ = controllers(store)
    assert one.held()
    assert not other.held()
    one.resign()
    assert other.held()
    assert not one.held()
    one.resign()
    assert other.held(), "only its own lead can be given up"


def test_a_process_of_this_machine_that_is_dead_is_not_waited_for(store: Store) -> None:
    code = "from service.dispatch.identity import me; print(me(), end='')"
    dead = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert Elected(store, dead).held()
    assert controllers(store)[0].held()


def test_of_many_who_try_at_once_one_leads(store: Store) -> None:
    host = socket.gethostname()
    many = [Elected(store, f"x{number}-{host}:1:1.00") for number in range(8)]
    found: list[bool] = []
    threads = [threading.Thread(target=lambda one=one: found.append(one.held())) for one in many]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found.count(True) == 1
    with store.reading() as session:
        leader = repositories.get_leader(session, "shared")
    assert leader is not None
    assert leader.owner == f"x{[one.held() for one in many].index(True)}-{host}:1:1.00"
