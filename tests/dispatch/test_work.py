"""What is kept of a job is all that a later controller needs: it makes of it the very same runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dispatch.scripted import ENVIRONMENT, Asked, plan_of, settings_in, shape, store_sweep
from dispatch.test_runs import NEEDS, need
from service.dispatch.placement import fits
from service.dispatch.work import Places, Work, jobs
from service.domain.arms import needs as needs_of
from service.domain.lifecycle import State
from service.domain.repeat import Repeat
from service.domain.timeouts import Timeouts
from service.domain.verdict import Verdict
from service.store import open_store, repositories
from service.store.plain import dump_json
from service.store.queue_records import JobKind
from service.store.records import SweepState
from workers.protocol import BatchPlan, Check, EnvironmentSpec, Role


@pytest.mark.parametrize(
    "work",
    [
        Work("default", need=need(Role.REPLICATED, perturbations=4)),
        Work("old", need=need(Role.EVAL, evaluation={"tasks": ["gsm8k"], "limit": 8})),
        Work("default", needs=NEEDS, batch=BatchPlan(seed=3, waves=[[1, 2]], chunked_prefill=True)),
    ],
)
def test_work_comes_back_as_it_was_stored(work: Work) -> None:
    found = Work.read(json.loads(dump_json(work.plain())))
    assert found == work
    if work.need is not None and found.need is not None:
        assert found.need.key(ENVIRONMENT) == work.need.key(ENVIRONMENT), "and is the same arm"


def test_places_come_back_as_they_were_stored(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    plan = plan_of(settings, Asked("a"))
    found = Places.read(json.loads(dump_json(Places.of(plan).plain())))
    assert found == Places.of(plan)
    whole = Places(found.by_name, Timeouts(phase=3.0), Repeat(cold=3), True)
    spec = EnvironmentSpec(name="old", root="/environments", requirements=["vllm==1"])
    whole.by_name["old"] = type(whole.by_name["default"])("/python", ENVIRONMENT, spec)
    again = Places.read(json.loads(dump_json(whole.plain())))
    assert again == whole
    place = again.workplace("sweep", "old", settings)
    assert (str(place.settings.python), place.engine, place.traces) == ("/python", spec, True)


def test_places_do_not_grow_with_the_cells(tmp_path: Path) -> None:
    few, many = (plan_of(settings_in(tmp_path), *(Asked(f"c{n}") for n in range(cells))) for cells in (1, 40))
    remarked = replace(many, cells=tuple(replace(item, notes=("is off here",)) for item in many.cells))
    assert Places.of(remarked) == Places.of(few)


def test_shared_arms_come_first_and_once_and_cells_wait_for_them(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    plan = plan_of(
        settings,
        Asked("a"),
        Asked("b", env={"X": "1"}),
        Asked("same", same_as="a"),
        Asked("audited", (Check.AUDIT,)),
        Asked("timed", (Check.COMPILE,)),
    )
    found = jobs("sweep", plan, Places.of(plan), settings)
    assert [job.kind for job in found] == [JobKind.ARM] * 3 + [JobKind.CELL] * 3
    assert [job.position for job in found] == list(range(6))
    a, b, timed = found[3:]
    assert (a.id, b.id, timed.id) == ("sweep/id-a", "sweep/id-b", "sweep/id-timed")
    assert len(set(a.needs) & set(b.needs)) == 1, "the reference"
    assert timed.needs == ()
    wanted = needs_of(plan.cells[0].cell, shape(), plan.cells[0].batch)
    place = Places.of(plan).workplace("sweep", "default", settings)
    assert set(a.needs) == {place.shared_key(need) for need in wanted.shared}


def test_what_needs_no_run_is_concluded_as_it_is_stored(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    store = open_store(settings.store_url)
    audit = (Check.AUDIT,)
    sweep = store_sweep(settings, store, Asked("a", audit), Asked("same", audit, same_as="a"))
    with store.reading() as session:
        assert repositories.get_sweep(session, sweep).state is SweepState.ENDED
        one, same = repositories.cells_of(session, sweep)
        assert repositories.jobs_of(session, sweep) == []
    assert (one.state, one.verdict, same.verdict) == (State.FINISHED, Verdict.PASS, Verdict.DUPLICATE)
    store.close()


def test_all_ranks_have_to_fit_on_one_machine() -> None:
    machines = [{"CPU": 64.0, "GPU": 4.0}, {"CPU": 64.0, "GPU": 8.0}, {"CPU": 64.0}]
    assert fits(8, machines)
    assert not fits(9, machines), "two machines are not one"
    assert not fits(1, [{"GPU": 8.0}]), "the actor needs a core"
    assert not fits(1, [])
