"""What a running controller does with its queue: a real Ray and real actors, engines played by a script."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

from dispatch.scripted import Asked, cells, controlling, has_ended, settings_in, short_folder, submit, until
from service.dispatch import attempt
from service.dispatch.controller import Controller
from service.dispatch.going import MOST_WAITING
from service.domain.lifecycle import InvalidTransition, Limits, State
from service.domain.verdict import Verdict
from service.report import stored_report
from service.report_text import FORMAT, stored_report_text
from service.settings import Settings
from service.store import Store, repositories
from service.store.records import RUN_LOST, RunRecord, UnknownRecord
from workers.protocol import Check

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COLD = (Check.COMPILE,)


@dataclass(frozen=True)
class Here:
    controller: Controller
    store: Store
    settings: Settings

    def submit(self, *asked: Asked, priority: int = 0, max_parallel: int | None = None) -> str:
        return submit(self.controller, self.settings, *asked, priority=priority, max_parallel=max_parallel)

    def states(self, sweep_id: str) -> dict[str, State]:
        return {name: cell.state for name, cell in cells(self.store, sweep_id).items()}

    def runs(self, sweep_id: str, name: str) -> list[RunRecord]:
        with self.store.reading() as session:
            return repositories.runs_of(session, sweep_id, f"id-{name}")

    def gate(self, name: str) -> Path:
        return self.settings.home / f"gate-{name}"

    def gated(self, name: str, ranks: int = 1) -> Asked:
        """A cell whose engines hang until its gate is there, as a compile may."""
        return Asked(name, COLD, ranks, {"GATE": str(self.gate(name)), "NAME": name})

    def end(self, sweep_id: str) -> None:
        until(lambda: has_ended(self.store, sweep_id))


@pytest.fixture(scope="module")
def here() -> Iterator[Here]:
    with short_folder() as folder:
        settings = settings_in(folder / "home")
        with controlling(settings) as (controller, store):
            yield Here(controller, store, settings)


def engines(name: str) -> list[psutil.Process]:
    """The engine processes of the cell ``name``."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            line = " ".join(process.cmdline())
            if "workers.engine" in line and "workers.supervisor" not in line and process.environ().get("NAME") == name:
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_a_sweep_comes_to_its_end_with_shared_arms_and_duplicates(here: Here) -> None:
    sweep = here.submit(
        Asked("a"), Asked("twin", same_as="a"), Asked("audited", (Check.AUDIT,)), Asked("dead", env={"DIE": "1"})
    )
    here.end(sweep)
    assert here.states(sweep) == {
        "a": State.FINISHED, "twin": State.FINISHED, "audited": State.FINISHED, "dead": State.FAILED,
    }  # fmt: skip
    found = cells(here.store, sweep)
    assert found["twin"].reasons[-1].startswith("duplicate: same effective settings as a")
    assert found["dead"].verdict is Verdict.CRASHED
    assert len(here.runs(sweep, "a")) == len(here.runs(sweep, "dead")) == 1
    assert here.runs(sweep, "twin") == []
    with here.store.reading() as session:
        jobs = repositories.jobs_of(session, sweep)
    assert all(job.state.ended and job.owner is None for job in jobs)
    with here.store.reading() as session:
        parts = {part.cell_id: part.text for part in repositories.parts_of(session, sweep, FORMAT)}
        assert stored_report_text(session, sweep) == json.dumps(stored_report(session, sweep))
    assert parts.keys() == {"id-a", "id-dead"}
    assert None not in parts.values(), "what a run gives for the report is made when it ends"
    # The replicated arms of two cells that differ in their environment, and one reference for both.
    assert [job.kind for job in jobs].count("arm") == 3


def test_a_cancelled_sweep_frees_its_slots_though_its_engine_hangs(here: Here) -> None:
    sweep = here.submit(here.gated("hangs"), here.gated("hangs-too"), here.gated("waits"))
    until(lambda: engines("hangs"))
    hanging = engines("hangs")
    here.controller.cancel(sweep)
    assert set(here.states(sweep).values()) == {State.CANCELLED}
    assert has_ended(here.store, sweep)
    total = ray.cluster_resources()["CPU"]
    until(lambda: ray.available_resources().get("CPU", 0) == total)
    assert psutil.wait_procs(hanging, timeout=30)[1] == []
    assert [run.state for run in here.runs(sweep, "hangs")] == [State.CANCELLED]
    assert cells(here.store, sweep)["waits"].verdict is Verdict.CANCELLED
    with pytest.raises(InvalidTransition, match="is ended and cannot be cancelled"):
        here.controller.cancel(sweep)
    with pytest.raises(UnknownRecord):
        here.controller.cancel("nope")


def test_one_cell_is_cancelled_and_the_others_go_on(here: Here) -> None:
    sweep = here.submit(here.gated("one"), Asked("other"))
    until(lambda: here.states(sweep)["one"] is State.RUNNING)
    here.controller.cancel(sweep, "id-one")
    here.end(sweep)
    assert here.states(sweep) == {"one": State.CANCELLED, "other": State.FINISHED}
    with pytest.raises(InvalidTransition, match="cannot be cancelled"):
        here.controller.cancel(sweep, "id-one")


def test_a_lost_actor_costs_an_attempt_and_no_cell(here: Here) -> None:
    sweep = here.submit(here.gated("victim"))
    until(lambda: engines("victim"))
    supervisor = engines("victim")[0].parent()
    actor = supervisor.parent() if supervisor else None
    assert actor is not None
    actor.kill()
    here.gate("victim").touch()
    here.end(sweep)
    lost, kept = here.runs(sweep, "victim")
    assert (lost.state, kept.state) == (State.CRASHED, State.FINISHED)
    assert lost.failure is not None
    assert "actor" in lost.failure
    assert lost.spec.arms[0].folder != kept.spec.arms[0].folder
    with here.store.reading() as session:
        told = [event for event in repositories.events_after(session, sweep, 0, 1000) if event.kind == RUN_LOST]
    assert [event.run_id for event in told] == [lost.id]


@pytest.mark.parametrize(("times", "last"), [(1, State.FINISHED), (None, State.CRASHED)])
def test_an_error_that_nobody_foresaw_costs_an_attempt_each_time(
    here: Here, monkeypatch: pytest.MonkeyPatch, times: int | None, last: State
) -> None:
    execute, errors = attempt.execute, repeat(OSError("Too many open files"), *([] if times is None else [times]))

    def break_off(*given: Any) -> Iterator[dict[str, Any]]:
        for error in errors:
            raise error
        yield from execute(*given)

    monkeypatch.setattr(attempt, "execute", break_off)
    sweep = here.submit(Asked(f"unlucky-{last}", COLD))
    here.end(sweep)
    *broken, final = here.runs(sweep, f"unlucky-{last}")
    assert (here.states(sweep), final.state) == ({f"unlucky-{last}": last}, last)
    assert {run.failure for run in broken} == {"the run could not be carried out: OSError: Too many open files"}
    assert len(broken) == (times or Limits().attempts - 1)


def test_cells_are_run_again(here: Here) -> None:
    sweep = here.submit(Asked("weak", env={"DIE": "1", "N": "1"}), Asked("same", same_as="weak"), Asked("x"))
    here.end(sweep)
    here.controller.rerun(sweep, ["id-weak"])
    assert here.states(sweep)["same"] is State.QUEUED
    assert here.states(sweep)["x"] is State.FINISHED
    here.end(sweep)
    assert [len(here.runs(sweep, name)) for name in ("weak", "same", "x")] == [2, 0, 1]
    assert here.states(sweep) == {"weak": State.FAILED, "same": State.FAILED, "x": State.FINISHED}
    here.controller.rerun(sweep)
    here.end(sweep)
    assert [len(here.runs(sweep, name)) for name in ("weak", "same", "x")] == [3, 0, 2]


def test_what_cannot_be_run_again_is_refused_and_nothing_is_changed(here: Here) -> None:
    sweep = here.submit(here.gated("runs"), Asked("done", COLD))
    until(lambda: here.states(sweep) == {"runs": State.RUNNING, "done": State.FINISHED})
    with pytest.raises(InvalidTransition, match="is running and cannot be asked for again"):
        here.controller.rerun(sweep, ["id-done", "id-runs"])
    assert here.states(sweep)["done"] is State.FINISHED
    with pytest.raises(UnknownRecord):
        here.controller.rerun(sweep, ["nope"])
    here.gate("runs").touch()
    here.end(sweep)


def test_no_more_runs_at_once_than_the_sweep_allows(here: Here) -> None:
    sweep = here.submit(*(here.gated(f"m{number}") for number in range(3)), max_parallel=1)
    for number in range(3):
        until(lambda number=number: engines(f"m{number}"))
        states = list(here.states(sweep).values())
        assert states.count(State.RUNNING) + states.count(State.LEASED) == 1
        here.gate(f"m{number}").touch()
    here.end(sweep)


def test_a_sweep_of_higher_priority_comes_first(here: Here) -> None:
    holds = here.submit(here.gated("hold", ranks=2))
    until(lambda: engines("hold"))
    low = here.submit(*(Asked(f"l{number}", COLD, 2, {"L": str(number)}) for number in range(3)))
    until(lambda: list(here.states(low).values()).count(State.LEASED) == MOST_WAITING)
    high = here.submit(Asked("h", COLD, 2, {"H": "1"}), priority=5)
    here.gate("hold").touch()
    for sweep in (holds, low, high):
        here.end(sweep)
    high_ended = cells(here.store, high)["h"].ended_at
    later = [cell for cell in cells(here.store, low).values() if cell.ended_at and high_ended and
             cell.ended_at > high_ended]  # fmt: skip
    assert len(later) >= 3 - MOST_WAITING, "only those that waited in Ray already went before"
