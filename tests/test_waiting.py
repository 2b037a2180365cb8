"""What is said while nothing happens: which arm, and phase and seconds of its ranks."""

from __future__ import annotations

from typing import Any

from service.store.records import EventRecord
from service.waiting import Waiting
from workers.protocol import Role

NAMES = {"c1": "sp on", "c2": "sp off"}


def waiting(*events: dict[str, Any]) -> Waiting:
    found = Waiting()
    for number, event in enumerate(events):
        # The wall clock has jumped since: only when an event came counts.
        own = {"sweep_id": "s", "cell_id": "c1", "run_id": "r", "arm": Role.PROBE} | event | {"at": -3600.0 * number}
        found.see(EventRecord(id=number, **own), event["at"])
    return found


def started(**data: Any) -> dict[str, Any]:
    return {"kind": "arm-started", "at": 100.0, **data}


def phase(name: str, at: float, rank: int | None = None, **data: Any) -> dict[str, Any]:
    return {"kind": "phase", "at": at, "rank": rank, "data": {"name": name}, **data}


def test_ranks_are_shown_with_phase_and_seconds() -> None:
    found = waiting(started(), phase("start", 101.0), phase("profile", 108.0, 1), phase("load_model", 105.0, 0))
    assert found.lines(NAMES, 150.0) == ["sp on  probe  rank 0  load_model  45 s; rank 1  profile  42 s"]


def test_the_main_process_is_shown_before_and_after_the_ranks() -> None:
    before = waiting(started(), phase("import", 101.0))
    assert before.lines(NAMES, 103.4) == ["sp on  probe  main  import  2 s"]
    after = waiting(started(), phase("start", 101.0), phase("warm_up", 102.0, 0), phase("requests", 110.0))
    assert after.lines(NAMES, 111.0) == ["sp on  probe  main  requests  1 s"]
    assert waiting(started()).lines(NAMES, 111.0) == ["sp on  probe  starting"]


def test_an_arm_that_has_ended_is_not_waited_for() -> None:
    ended = {"kind": "arm-finished", "at": 120.0}
    assert waiting(started(), phase("import", 101.0), ended).lines(NAMES, 121.0) == []
    assert waiting(started(), phase("import", 101.0)).lines({"c2": "sp off"}, 121.0) == []


def test_shared_arms_are_waited_for_too() -> None:
    shared = {"cell_id": None, "run_id": None, "arm": Role.REFERENCE}
    found = waiting(started(**shared), phase("import", 101.0, **shared), started(cell_id="c2"))
    assert found.lines(NAMES, 102.0) == ["reference  main  import  1 s", "sp off  probe  starting"]


def test_what_a_lost_run_was_at_is_shown_no_more() -> None:
    lost = {"kind": "run-lost", "at": 120.0, "arm": None, "data": {"name": "its node is gone"}}
    again = {"run_id": "r2", "at": 130.0, "kind": "arm-started"}
    found = waiting(started(), phase("inductor", 105.0, 0), lost, again)
    assert found.lines(NAMES, 140.0) == ["sp on  probe  starting"]
    other = waiting(started(), phase("inductor", 105.0, 0), {**lost, "run_id": "another"})
    assert other.lines(NAMES, 140.0) == ["sp on  probe  rank 0  inductor  35 s"]
