"""The counting of the fault test sees what it is there to see: each contradiction is made here, in a real store."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import update
from store.samples import SWEEP, add_sweep, advance, arm_report, evidence, run_spec

from chaos.__main__ import DECK, kinds
from chaos.count import Counted, count
from chaos.own import is_below, left, processes
from service.domain.lifecycle import State
from service.domain.verdict import Verdict
from service.store import Store, open_store, repositories
from service.store.models import CellRow, RunRow
from service.store.records import NewEvent
from workers.protocol import Role


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path}/chaos.db")
    yield store
    store.close()


def attempt(store: Store, cell_id: str, run_id: str, result: bool, told: int = 1) -> None:
    """A run of a cell to its end; ``told``: how often its arm was told to have ended."""
    found = evidence(arms=[arm_report(Role.COLD)]) if result else None
    with store.transaction() as session:
        repositories.create_run(session, SWEEP, cell_id, run_spec(run_id, cell_id), State.RUNNING)
        event = NewEvent(SWEEP, 1.0, "arm-finished", cell_id, run_id, Role.COLD, None, {})
        repositories.add_events(session, [event] * told)
        state = State.FINISHED if result else State.CRASHED
        repositories.finish_run(session, run_id, state, found, None if result else "its actor is gone")


def conclude(store: Store, cell_id: str, state: State = State.FINISHED) -> None:
    advance(store, cell_id, State.QUEUED, State.LEASED, State.RUNNING)
    verdict = Verdict.PASS if state is State.FINISHED else Verdict.CRASHED
    with store.transaction() as session:
        repositories.conclude_cell(session, SWEEP, cell_id, verdict, verdict is Verdict.PASS, ["why"], state)


def healthy(store: Store) -> None:
    """One cell that passed at its second attempt, and one whose attempts are used up."""
    add_sweep(store)
    attempt(store, "c0", "r1", result=False, told=0)
    attempt(store, "c0", "r2", result=True)
    attempt(store, "c1", "r3", result=False)
    conclude(store, "c0")
    conclude(store, "c1", State.CRASHED)
    with store.transaction() as session:
        repositories.end_sweep(session, SWEEP)


def counted(store: Store, cells: int = 2) -> Counted:
    with store.reading() as session:
        return count(session, {SWEEP: cells})


def test_nothing_is_wrong_with_a_cell_that_was_tried_again(store: Store) -> None:
    healthy(store)
    found = counted(store)
    assert found.problems == []
    assert found.cells == {"finished": 1, "crashed": 1}
    assert found.verdicts == {"pass": 1, "crashed": 1}
    assert found.attempts == {2: 1, 1: 1}


def _doubled(store: Store) -> None:
    attempt(store, "c0", "r4", result=True)


def _lost(store: Store) -> None:
    attempt(store, "c1", "r4", result=True)


def _without_a_run(store: Store) -> None:
    with store.transaction() as session:
        session.execute(update(CellRow).where(CellRow.id == "c1").values(state=State.FINISHED))


def _never_ended(store: Store) -> None:
    with store.transaction() as session:
        session.execute(update(CellRow).where(CellRow.id == "c1").values(state=State.RUNNING, verdict=None))


def _run_never_ended(store: Store) -> None:
    with store.transaction() as session:
        session.execute(update(RunRow).where(RunRow.id == "r3").values(state=State.RUNNING))


def _two_at_once(store: Store) -> None:
    with store.transaction() as session:
        first = repositories.get_run(session, "r1")
        session.execute(update(RunRow).where(RunRow.id == "r1").values(ended_at=first.created_at.replace(year=2100)))
        session.execute(update(RunRow).where(RunRow.id == "r2").values(started_at=first.created_at))


def _an_event_twice(store: Store) -> None:
    event = NewEvent(SWEEP, 1.0, "arm-finished", "c0", "r2", Role.COLD, None, {})
    with store.transaction() as session:
        repositories.add_events(session, [event])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (_doubled, "a result is doubled: r2, r4"),
        (_lost, "a result is lost: run r4 has evidence, and the cell is crashed"),
        (_without_a_run, "no run of it has a result"),
        (_never_ended, "it is running with the verdict None: it never ended"),
        (_run_never_ended, "run r3 is running: it never ended"),
        (_two_at_once, "run r2 began before run r1 had ended"),
        (_an_event_twice, "its evidence has the arms {'cold': 1}, its events {'cold': 2}"),
    ],
)
def test_each_contradiction_is_seen(store: Store, wrong: Callable[[Store], None], said: str) -> None:
    healthy(store)
    wrong(store)
    assert any(said in problem for problem in counted(store).problems), counted(store).problems


def test_a_missing_cell_and_a_sweep_that_goes_on_are_seen(store: Store) -> None:
    add_sweep(store)
    problems = counted(store, 3).problems
    assert f"sweep {SWEEP} has not ended" in problems
    assert f"sweep {SWEEP} was to have 3 cells and has 2" in problems


def test_a_process_that_stays_is_seen_whoever_its_parent_is(tmp_path: Path) -> None:
    assert left(tmp_path, 0.0) == []
    child = "import os, time; os.fork() and os._exit(0); print(flush=True); time.sleep(60)"
    command = [sys.executable, "-S", "-c", child]
    with subprocess.Popen(command, env=os.environ | {"TMPDIR": str(tmp_path / "x")}, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"\n"
        parent.wait()
        (line,) = left(tmp_path, 0.0)
        assert "time.sleep(60)" in line
        assert left(tmp_path / "another", 0.0) == []
        for process, _ in processes(tmp_path):
            process.kill()
    deadline = time.monotonic() + 30
    while left(tmp_path, 0.0):
        assert time.monotonic() < deadline


def test_a_folder_is_below_another_by_its_whole_name() -> None:
    assert is_below("/tmp/sp-1", Path("/tmp/sp-1"))
    assert is_below("/tmp/sp-1/shpf-2", Path("/tmp/sp-1"))
    assert not is_below("/tmp/sp-12", Path("/tmp/sp-1"))
    assert not is_below("", Path("/tmp/sp-1"))


def test_a_seed_is_one_order_of_kills() -> None:
    first = list(kinds(7, 25))
    assert first == list(kinds(7, 25))
    assert first != list(kinds(8, 25))
    assert len(first) == 25
    assert sorted(kind for kind, _ in first[:10]) == sorted(kind for kind, _ in first[10:20]) == sorted(DECK)
