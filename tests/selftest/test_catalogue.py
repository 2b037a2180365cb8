"""The catalogue: every kind of fault at several places, in batches that run the graphs they are meant for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from workers.protocol import INVARIANTS, BatchPlan
from workers.selftest.catalogue import (
    AT_THE_THRESHOLD,
    BELOW,
    CLEAN,
    FAULT_PLAN,
    HEALTHY,
    HEALTHY_QUICK,
    PIPELINE,
    PREFILL_PLAN,
    RANKS,
    REPLICATED,
    RESIDUAL,
    SITES,
    SP,
    UNGUARDED,
    Entry,
    Span,
    catalogue,
    fault_plan,
    healthy,
    healthy_plans,
    plans,
)
from workers.selftest.engines import engines, trials
from workers.selftest.faults import COLLECTIVE_FAULTS, RESIDUAL_FAULTS

ENTRIES = catalogue(quick=False)


def kinds(entries: list[Entry]) -> set[str]:
    return {entry.fault.kind for entry in entries}


def steps(plan: BatchPlan) -> Iterator[int]:
    """Tokens of each step: prefill of a wave, decoding of it, and of requests that come one by one."""
    for wave in plan.waves:
        yield sum(wave)
        yield from [len(wave)] * (plan.max_tokens - 1)
    for wave in plan.staggered:
        for number, length in enumerate(wave):
            yield length + min(number, plan.max_tokens - 1)


def padded(tokens: int) -> int:
    return tokens + tokens % RANKS


def span_of(tokens: int, spans: list[Span]) -> Span | None:
    return next((span for span in spans if span[0] <= padded(tokens) <= span[1]), None)


def test_there_are_many_kinds_each_at_several_sites_and_ranks() -> None:
    found = kinds(ENTRIES)
    collective = {kind for faults in COLLECTIVE_FAULTS.values() for kind in faults}
    assert found >= {*RESIDUAL_FAULTS, *collective}
    assert len(found) >= 40
    for kind in RESIDUAL_FAULTS:
        mine = [entry for entry in ENTRIES if entry.fault.kind == kind and entry.engine == SP]
        assert {entry.site for entry in mine} == set(range(SITES))
        assert all(entry.ranks <= set(range(RANKS)) for entry in mine)


def test_every_recording_has_a_name_of_its_own() -> None:
    names = [(entry.engine, entry.name) for entry in ENTRIES]
    assert len(set(names)) == len(names)
    runs, named = healthy(quick=False)
    assert not {run.name for run in runs} & {entry.name for entry in ENTRIES}
    assert not set(named) & set(plans())


def test_a_quick_run_has_every_kind_that_two_ranks_and_two_engines_can_show() -> None:
    quick = catalogue(quick=True)
    assert kinds(quick) == {entry.fault.kind for entry in ENTRIES if entry.engine not in (PIPELINE, UNGUARDED)}
    assert set(engines(quick)) == {REPLICATED, SP}
    assert len(quick) == len(kinds(quick))


def test_every_check_is_there_for_some_fault() -> None:
    assert {entry.check for entry in ENTRIES} == {RESIDUAL, *INVARIANTS}


def test_batches_run_the_graphs_they_are_meant_for() -> None:
    special = [entry.compiled for entry in ENTRIES if entry.compiled]
    for entry in ENTRIES:
        plan = plans()[entry.plan]
        ran = {span_of(tokens, [BELOW, CLEAN, *special]) for tokens in steps(plan)}
        expected = {FAULT_PLAN: {BELOW, CLEAN}, PREFILL_PLAN: {CLEAN}}
        assert ran == expected.get(entry.plan, {entry.compiled})
    for plan in healthy_plans(HEALTHY):
        assert {span_of(tokens, [BELOW, CLEAN, AT_THE_THRESHOLD]) for tokens in steps(plan)} <= {BELOW, CLEAN}


def test_healthy_plans_differ_in_seed_and_size() -> None:
    drawn = healthy_plans(HEALTHY)
    assert len({plan.model_dump_json() for plan in drawn}) == HEALTHY
    sizes = [tokens for plan in [*drawn, fault_plan()] for tokens in steps(plan)]
    assert {tokens % RANKS for tokens in sizes} == {0, 1}
    assert min(sizes) == 1
    assert any(plan.staggered for plan in drawn)


@pytest.mark.parametrize(("quick", "count"), [(False, HEALTHY), (True, HEALTHY_QUICK)])
def test_healthy_runs(quick: bool, count: int) -> None:
    runs, named = healthy(quick)
    assert len(runs) == count
    assert any(run.noise is not None for run in runs)
    assert {run.plan for run in runs} <= {FAULT_PLAN, PREFILL_PLAN, *named}


@pytest.mark.parametrize("quick", [False, True])
def test_what_is_right_is_known_for_every_fault_and_healthy_run(quick: bool) -> None:
    entries, (runs, named) = catalogue(quick), healthy(quick)
    found = {
        name: {trial.name: trial for trial in trials(engine, entries, runs, named)}
        for name, engine in engines(entries).items()
    }
    for entry in entries:
        recorded = found[entry.engine][entry.name]
        assert found[REPLICATED][entry.plan].batch == recorded.batch
        assert (recorded.fault is None) == (not entry.switched)
    for run in runs:
        assert found[REPLICATED][run.plan].batch == found[run.engine][run.name].batch
    assert found[SP][FAULT_PLAN].fault is None


def test_every_kind_of_fault_and_every_check_is_documented() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "selftest.md").read_text()
    assert [name for name in sorted({*kinds(ENTRIES), *INVARIANTS}) if f"`{name}`" not in page] == []
