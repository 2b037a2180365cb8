"""A cell that ran until another version came and cannot be resolved any more: its series goes on, without figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from store.nights import night
from store.samples import evidence

from dispatch.scripted import ENVIRONMENT, Asked, plan_of, settings_in
from service.dispatch.accept import Terms, accept
from service.dispatch.history import Ran, followed
from service.dispatch.plan import Plan
from service.domain.case import Judgement, Reason
from service.domain.notices import NoticeKind
from service.domain.verdict import Verdict
from service.store import open_store, repositories
from service.store.queue_records import SHARED
from service.store.records import CellRecord
from service.store.repositories import earlier
from service.store.series_records import NoticeRecord, OutcomeRecord, SeriesRecord
from workers.protocol import Check, Environment

NEWER = ENVIRONMENT.model_copy(update={"vllm": "0.99.0"})
LACKS = Reason(Verdict.UNSUPPORTED, "vLLM 0.99.0 has no such setting: enable_sp")
LOST = Reason(Verdict.CRASHED, "environment default: pip finds no vllm")


class Nights:
    """A cell, sweep after sweep: resolved and run, or refused as it is resolved."""

    def __init__(self, home: Path) -> None:
        self.settings = settings_in(home)
        self.store = open_store(self.settings.store_url)
        self.number = 0

    def refused(self, why: Reason, where: Environment | None = NEWER, **cell: Any) -> CellRecord:
        (item,) = self._plan().cells
        nothing = item.audited.model_copy(update={"effective": None, "shape": None})
        told = replace(item, cell=replace(item.cell, **cell), audited=nothing, environment=where, cannot_run=why)
        plan = self._plan()
        return self._accept(replace(plan, cells=(told,), matrix=replace(plan.matrix, cells=(told.cell,))))

    def passed(self) -> CellRecord:
        cell = self._accept(self._plan())
        with self.store.transaction() as session:
            ran = Ran(cell, "run", ENVIRONMENT, evidence(environment=ENVIRONMENT), Judgement(Verdict.PASS, True, ()))
            assert followed(session, ran, self.settings) == ()
        return cell

    def _plan(self) -> Plan:
        return plan_of(self.settings, Asked("a", (Check.COMPILE,)))

    def _accept(self, plan: Plan) -> CellRecord:
        self.number += 1
        sweep_id = f"sweep-{self.number}"
        with self.store.transaction() as session:
            accept(session, sweep_id, "elsewhere:1:1.00", plan, Terms(SHARED), self.settings)
            return repositories.get_cell(session, sweep_id, plan.cells[0].cell.id)

    def notices(self) -> list[NoticeRecord]:
        """Oldest first."""
        with self.store.reading() as session:
            return repositories.series_notices.notices(session, 100)[::-1]

    def series(self) -> list[SeriesRecord]:
        with self.store.reading() as session:
            return repositories.series.list_series(session, 10)

    def outcomes(self) -> list[OutcomeRecord]:
        """Oldest first."""
        with self.store.reading() as session:
            return repositories.series.outcomes_of(session, self.series()[0].id, 100)[::-1]


@pytest.fixture
def nights(tmp_path: Path) -> Iterator[Nights]:
    found = Nights(tmp_path)
    yield found
    found.store.close()


def test_a_cell_that_passed_and_is_refused_is_told_once_and_so_is_its_end(nights: Nights) -> None:
    nights.passed()
    assert nights.notices() == []
    first = nights.refused(LACKS)
    assert (first.verdict, first.ok, first.reasons) == (Verdict.UNSUPPORTED, False, (f"unsupported: {LACKS.text}",))
    (told,) = nights.notices()
    assert (told.kind, told.sweep_id, told.cell_id) == (NoticeKind.NEW_FAILURE, first.sweep_id, first.id)
    assert told.what == f"a: unsupported: {LACKS.text}"
    assert (told.versions_before["vllm"], told.versions_after["vllm"]) == (ENVIRONMENT.vllm, "0.99.0")
    assert (told.figure, told.before, told.after) == (None, None, None)
    nights.refused(LACKS)
    assert len(nights.notices()) == 1
    nights.passed()
    assert [item.kind for item in nights.notices()] == [NoticeKind.NEW_FAILURE, NoticeKind.RECOVERED]


def test_it_is_a_night_of_the_series_that_there_was_and_has_no_figure(nights: Nights) -> None:
    nights.passed()
    with nights.store.reading() as session:
        before = repositories.series_points.points_of(session, nights.series()[0].id, None)
    cell = nights.refused(LACKS)
    (series,) = nights.series()
    assert (series.last_verdict, series.last_ok) == (Verdict.UNSUPPORTED, False)
    assert [(item.verdict, item.run_id) for item in nights.outcomes()] == [
        (Verdict.PASS, "run"),
        (Verdict.UNSUPPORTED, None),
    ]
    with nights.store.reading() as session:
        assert repositories.series_points.points_of(session, series.id, None) == before
        assert repositories.series.series_of_cell(session, cell.sweep_id, cell.id) == series.id


def test_an_environment_that_cannot_be_had_is_told_without_versions(nights: Nights) -> None:
    nights.passed()
    nights.refused(LOST, where=None)
    (told,) = nights.notices()
    assert (told.kind, told.versions_before["vllm"], told.versions_after) == ("new-failure", ENVIRONMENT.vllm, {})
    nights.refused(LACKS)
    assert [item.what for item in nights.notices()] == [f"a: crashed: {LOST.text}", f"a: unsupported: {LACKS.text}"]


@pytest.mark.parametrize(
    ("where", "cell"),
    [
        (NEWER, {"name": "another"}),
        (NEWER, {"requested": {"model": "tiny:llama", "tensor_parallel_size": 4}}),
        (NEWER, {"requested": {"model": "tiny:llama", "tensor_parallel_size": 1, "environment": "new"}}),
        (NEWER.model_copy(update={"cores": 999}), {}),
    ],
)
def test_what_is_another_configuration_or_machine_is_not_taken_for_it(
    nights: Nights, where: Environment, cell: dict[str, Any]
) -> None:
    nights.passed()
    nights.refused(LACKS, where, **cell)
    assert nights.notices() == []
    assert [item.verdict for item in nights.outcomes()] == [Verdict.PASS]


def test_a_cell_that_never_ran_has_no_series(nights: Nights) -> None:
    nights.refused(LACKS)
    assert nights.notices() == []
    assert nights.series() == []


def test_who_expects_it_is_told_nothing(nights: Nights) -> None:
    nights.passed()
    assert nights.refused(LACKS, expect=(Verdict.PASS, Verdict.UNSUPPORTED)).ok
    assert nights.notices() == []
    assert len(nights.outcomes()) == 2


def test_nothing_is_told_while_it_is_muted(nights: Nights) -> None:
    nights.passed()
    (series,) = nights.series()
    with nights.store.transaction() as session:
        later = series.last_at + timedelta(days=1)
        repositories.series_said.mute(session, series.id, later, "known", "ann", now=night(0))
    nights.refused(LACKS)
    assert nights.notices() == []
    assert len(nights.outcomes()) == 2


def test_a_fault_of_this_code_costs_the_sweep_nothing(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    nights.passed()
    monkeypatch.setattr(earlier, "series_so_far", fails)
    cell = nights.refused(LACKS)
    assert cell.verdict is Verdict.UNSUPPORTED
    assert "not followed over time" in cell.reasons[1]
    assert len(nights.outcomes()) == 1
