"""What concluding a cell adds to its series, and what the series says to its verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session
from store.nights import night, sweep_of
from store.samples import ENVIRONMENT, add_sweep, arm_report, audited, evidence, times

from service.dispatch import history
from service.dispatch.history import Ran, followed, with_reasons
from service.domain.case import Judgement, Reason
from service.domain.judge import conclude
from service.domain.notices import NoticeKind
from service.domain.verdict import Verdict
from service.settings import Settings
from service.store import Store, open_store, repositories
from service.store.records import CellRecord
from service.store.series_records import NoticeRecord, PointRecord
from workers.protocol import Check, Compile, Environment, Evidence, Machine, Role

PASSED = Judgement(Verdict.PASS, True, ())


@pytest.fixture
def store(tmp_path: Path) -> Any:
    found = open_store(f"sqlite:///{tmp_path / 'history.db'}")
    yield found
    found.close()


class Nights:
    """The same cell, sweep after sweep."""

    def __init__(self, store: Store, home: Path) -> None:
        self.store = store
        self.settings = Settings(home=home)
        self.number = 0

    def run(
        self,
        cold: float = 20.0,
        found: Evidence | None = None,
        judgement: Judgement = PASSED,
        vllm: str = "0.31.0",
        **cell: Any,
    ) -> tuple[Judgement, tuple[Reason, ...]]:
        """One more sweep whose cold start takes so long; the verdict in the end, and what the series said."""
        ran = self.ran(cold, found, judgement, vllm, **cell)
        with self.store.transaction() as session:
            reasons = followed(session, ran, self.settings, now=night(self.number))
        self.number += 1
        return with_reasons(ran.judgement, reasons, ran.cell), reasons

    def ran(
        self,
        cold: float = 20.0,
        found: Evidence | None = None,
        judgement: Judgement = PASSED,
        vllm: str = "0.31.0",
        **cell: Any,
    ) -> Ran:
        sweep = sweep_of(self.number)
        add_sweep(self.store, sweep, cells=1)
        environment = ENVIRONMENT.model_copy(update={"vllm": vllm})
        with self.store.transaction() as session:
            repositories.record_audit(session, sweep, "c0", audited("c0"), "print", environment)
            record = replace(repositories.get_cell(session, sweep, "c0"), **cell)
        measured = found or evidence(compile=Compile(cold=times(cold), warm=times(6.0)), environment=environment)
        return Ran(record, f"run-{self.number}", environment, measured, judgement)

    def points(self, figure: str = "cold_s") -> list[PointRecord]:
        with self.store.reading() as session:
            (series,) = repositories.series.list_series(session, 10)
            return repositories.series_points.points_of(session, series.id, [figure])

    def notices(self) -> list[NoticeRecord]:
        """Oldest first."""
        with self.store.reading() as session:
            return repositories.series_notices.notices(session, 100)[::-1]


@pytest.fixture
def nights(store: Store, tmp_path: Path) -> Nights:
    return Nights(store, tmp_path)


def steady(nights: Nights, count: int = 7) -> None:
    for number in range(count):
        final, reasons = nights.run(20.0 + 0.1 * (number % 3 - 1))
        assert (final.verdict, reasons) == (Verdict.PASS, ())


def test_a_run_becomes_points_with_what_they_were_measured_with(nights: Nights) -> None:
    nights.run(20.0)
    (cold,) = nights.points()
    assert (cold.value, cold.repeats, cold.sweep_id, cold.cell_id, cold.run_id) == (20.0, 1, sweep_of(0), "c0", "run-0")
    assert cold.versions == {"vllm": "0.31.0", "torch": "2.11.0", "ray": "2.56.0", "python": "3.11.2"}
    assert [point.value for point in nights.points("warm_s")] == [6.0]
    assert [point.value for point in nights.points("cold.dynamo")] == [1.5]


def test_a_run_over_several_machines_is_held_against_none_on_one(nights: Nights) -> None:
    steady(nights)
    places = [Machine(host=f"m{rank}", node=f"n{rank}", ranks=[rank]) for rank in (0, 1)]
    slower = {"compile": Compile(cold=times(24.0), warm=times(6.0)), "environment": ENVIRONMENT}
    spread = evidence(**slower, arms=[arm_report(Role.COLD).model_copy(update={"machines": places})])
    assert nights.run(found=spread)[1] == ()
    with nights.store.reading() as session:
        found = repositories.series.list_series(session, 10)
    assert sorted(series.device for series in found) == [ENVIRONMENT.device, f"{ENVIRONMENT.device} on 2 machines"]
    assert "suspected" in nights.run(found=evidence(**slower))[1][0].text, "on one machine it is slower"


def test_a_slower_night_is_suspected_and_the_second_is_a_regression(nights: Nights) -> None:
    steady(nights)
    first, said = nights.run(24.0, vllm="0.32.0")
    assert (first.verdict, first.ok) == (Verdict.PASS, True)
    assert "suspected" in said[0].text
    second, said = nights.run(24.4, vllm="0.32.0")
    assert (second.verdict, second.ok) == (Verdict.REGRESSION, False)
    (reason,) = said
    assert "cold start 24.4 s, baseline 20 s (+22 %)" in reason.text
    assert f"since sweep {sweep_of(7)} of 2026-11-08" in reason.text
    assert "vllm 0.31.0 → 0.32.0" in reason.text
    suspected, regression = nights.notices()
    assert (suspected.kind, regression.kind) == (NoticeKind.SUSPECTED, NoticeKind.REGRESSION)
    assert (regression.before, regression.since_sweep_id, regression.sweep_id) == (20.0, sweep_of(7), sweep_of(8))
    assert regression.after == pytest.approx(24.2, abs=0.01)
    assert (regression.versions_before["vllm"], regression.versions_after["vllm"]) == ("0.31.0", "0.32.0")


def test_it_stays_a_regression_is_told_once_and_ends(nights: Nights) -> None:
    steady(nights)
    verdicts = [nights.run(cold)[0].verdict for cold in (24.0, 24.2, 24.1, 23.9, 20.1, 20.0, 20.1)]
    slower = [Verdict.REGRESSION] * 3
    assert verdicts == [Verdict.PASS, *slower, Verdict.PASS, Verdict.PASS, Verdict.PASS]
    assert [item.kind for item in nights.notices()] == [
        NoticeKind.SUSPECTED,
        NoticeKind.REGRESSION,
        NoticeKind.RECOVERED,
    ]


def test_as_fast_as_before_nothing_is_told(nights: Nights) -> None:
    steady(nights, 12)
    assert nights.notices() == []


def test_an_improvement_is_told_and_is_the_new_baseline(nights: Nights) -> None:
    steady(nights)
    for _ in range(6):
        assert nights.run(15.0)[0].verdict is Verdict.PASS
    assert [item.kind for item in nights.notices()] == [NoticeKind.IMPROVEMENT]
    assert [nights.run(20.0)[0].verdict for _ in range(2)] == [Verdict.PASS, Verdict.REGRESSION]


def test_a_graver_finding_stays_the_verdict(nights: Nights) -> None:
    """Not measured where the cell is not ok; where that was expected, the regression is one of its reasons."""
    expected = (Verdict.FAIL_OUTPUT,)
    wrong = conclude([Reason(Verdict.FAIL_OUTPUT, "a token differs")], expected)
    for _ in range(7):
        nights.run(20.0, judgement=wrong, expect=expected)
    finals = [nights.run(25.0, judgement=wrong, expect=expected)[0] for _ in range(2)]
    assert [final.verdict for final in finals] == [Verdict.FAIL_OUTPUT] * 2
    assert Verdict.REGRESSION in {reason.finding for reason in finals[-1].reasons}


def test_while_it_is_muted_it_is_a_note_and_nobody_hears_of_it(nights: Nights) -> None:
    steady(nights)
    with nights.store.transaction() as session:
        (series,) = repositories.series.list_series(session, 10)
        repositories.series_said.mute(session, series.id, night(8) + timedelta(hours=1), "known", "ann", now=night(6))
    finals = [nights.run(25.0)[0] for _ in range(3)]
    assert [final.verdict for final in finals] == [Verdict.PASS, Verdict.PASS, Verdict.REGRESSION]
    assert finals[1].reasons[0].text.endswith("muted")
    assert nights.notices() == []


def test_a_new_failure_is_told_once_and_so_is_its_end(nights: Nights) -> None:
    steady(nights, 1)
    crashed = conclude([Reason(Verdict.CRASHED, "cold arm, rank 1: out of memory")], (Verdict.PASS,))
    hung = conclude([Reason(Verdict.TIMED_OUT, "cold arm, rank 1: autotuning")], (Verdict.PASS,))
    for judgement in (crashed, crashed, hung, PASSED, PASSED):
        nights.run(judgement=judgement, vllm="0.32.0")
    found = nights.notices()
    assert [item.kind for item in found] == [NoticeKind.NEW_FAILURE, NoticeKind.HANG, NoticeKind.RECOVERED]
    assert found[0].what == "cell c0: crashed: cold arm, rank 1: out of memory"
    assert (found[0].versions_before["vllm"], found[0].versions_after["vllm"]) == ("0.31.0", "0.32.0")
    assert len(nights.points()) == 3


@pytest.mark.parametrize("verdict", [Verdict.CANCELLED, Verdict.SKIPPED])
def test_a_cell_that_did_not_run_has_no_outcome(nights: Nights, verdict: Verdict) -> None:
    nights.run(judgement=conclude([Reason(verdict, "asked for")], (Verdict.PASS,)))
    with nights.store.reading() as session:
        assert repositories.series.list_series(session, 10) == []


def _unforked(found: Evidence) -> Evidence:
    assert found.compile.cold is not None
    cold = found.compile.cold.model_copy(update={"forked": False})
    return found.model_copy(update={"compile": found.compile.model_copy(update={"cold": cold})})


def test_times_that_hold_imports_where_others_do_not_are_not_followed_and_that_is_said(nights: Nights) -> None:
    _, said = nights.run(found=_unforked(evidence()))
    assert "not followed" in said[0].text
    assert nights.points() == []
    nights.settings = nights.settings.model_copy(update={"preload": False})
    _, said = nights.run(found=_unforked(evidence()), name="by itself")
    assert said == ()
    with nights.store.reading() as session:
        named = {item.name: item.id for item in repositories.series.list_series(session, 10)}
        assert len(named) == 2
        assert len(repositories.series_points.points_of(session, named["by itself"], ["cold_s"])) == 1


def test_a_cell_that_does_not_ask_for_times_has_none(nights: Nights) -> None:
    nights.run(checks=(Check.OUTPUTS,))
    assert nights.points() == []


Changed = Callable[[CellRecord, Environment], tuple[CellRecord, Environment]]


def _ids(nights: Nights) -> set[str]:
    with nights.store.reading() as session:
        return {item.id for item in repositories.series.list_series(session, 10)}


def test_a_new_version_goes_on_with_the_series_and_another_machine_does_not(nights: Nights) -> None:
    nights.run()
    nights.run(vllm="0.99.0")
    assert len(_ids(nights)) == 1
    ran = nights.ran()
    larger = replace(ran, environment=ran.environment.model_copy(update={"cores": 64}))
    with nights.store.transaction() as session:
        followed(session, larger, nights.settings)
    assert len(_ids(nights)) == 2


def test_a_fault_of_this_code_costs_the_cell_nothing(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    steady(nights, 1)
    monkeypatch.setattr(history, "rejudge", fails)
    final, said = nights.run(30.0)
    assert final.verdict is Verdict.PASS
    (told,) = said
    assert told.finding is None
    assert "not followed over time" in told.text
    assert "ZeroDivisionError" in told.text
    assert len(nights.points()) == 1
    monkeypatch.undo()
    nights.run(20.0)
    assert len(nights.points()) == 2


def test_it_is_the_same_on_postgresql(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault leaves the unit of work usable there too, where an error in it usually ends it."""

    def fails(session: Session, *_: object) -> None:
        session.execute(text("SELECT nothing FROM nowhere"))

    store = open_store(postgres_url)
    try:
        nights = Nights(store, tmp_path)
        steady(nights)
        monkeypatch.setattr(history, "rejudge", fails)
        assert nights.run(30.0)[0].verdict is Verdict.PASS
        monkeypatch.undo()
        assert [nights.run(24.0)[0].verdict for _ in range(2)] == [Verdict.PASS, Verdict.REGRESSION]
        assert len(nights.points()) == 9
    finally:
        store.close()
