"""From what a run left, and what is stored of its cell, to the verdict. Nothing is asked and nothing runs."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from service.dispatch.runs import Workplace
from service.domain.arms import ArmNeed, RunNeeds
from service.domain.case import Case, Judgement, Reason
from service.domain.cell import Cell
from service.domain.findings import shared_arm
from service.domain.judge import judge
from service.domain.lifecycle import Kind
from service.domain.verdict import Verdict
from service.store import repositories
from service.store.records import CellRecord
from workers.protocol import ArmReport, Evidence, Failure, Outcome, RunSpec

ENDS = {Verdict.CRASHED: Kind.FAIL, Verdict.TIMED_OUT: Kind.TIME_OUT}
"""How a cell ends whose run came to an end. An engine that crashed is the engine's fault."""


@dataclass(frozen=True)
class Found:
    """What became of a cell's run: ``lost`` names shared arms that did not come through, ``failure`` a lost run."""

    evidence: Evidence | None
    lost: tuple[Reason, ...] = ()
    failure: str | None = None


@dataclass(frozen=True)
class SharedArms:
    """The shared arms of a cell as they ended. ``folders``: of all, by key. ``broken``: those without a result."""

    folders: dict[str, str]
    broken: dict[str, ArmReport]

    def found(self, evidence: Evidence | None, wanted: RunNeeds, place: Workplace, failure: str | None = None) -> Found:
        """What a run came to, and what of it is told by arms that it shares.

        A shared arm that would have been the cell's own died for this cell too: log and all.
        """
        own = [self._report(need, place) for need in wanted.stand_ins]
        if evidence is not None:
            evidence = evidence.model_copy(update={"arms": [*evidence.arms, *filter(None, own)]})
        needs = [need for need in wanted.shared if evidence is None or need not in wanted.stand_ins]
        reports = [(need, self._report(need, place)) for need in needs]
        lost = tuple(shared_arm(found, own=need in wanted.stand_ins) for need, found in reports if found is not None)
        return Found(evidence, lost, failure)

    def _report(self, need: ArmNeed, place: Workplace) -> ArmReport | None:
        return self.broken.get(place.shared_key(need))


def shared_arms(session: Session, wanted: RunNeeds, place: Workplace) -> SharedArms:
    folders, broken = {}, {}
    for key in {place.shared_key(need) for need in wanted.shared}:
        arm = repositories.get_arm(session, key)
        if arm is None:
            continue
        folders[key] = arm.folder
        if arm.report is not None and arm.report.outcome is not Outcome.OK:
            broken[key] = arm.report
    return SharedArms(folders, broken)


def judged(cell: CellRecord, found: Found, duplicate_of: str | None = None) -> Judgement:
    """The verdict on ``cell``, which shares the result of the cell named ``duplicate_of``, if of any."""
    if cell.shape is None:
        raise ValueError(f"cell {cell.name} was refused at audit and cannot be judged")
    return judge(
        Case(
            checks=cell.checks,
            expect=cell.expect,
            patches=Cell(cell.id, cell.name, cell.requested, cell.expect, cell.checks, ()).patches,
            shape=cell.shape,
            changes=cell.changes,
            evidence=found.evidence,
            duplicate_of=duplicate_of,
            lost=found.lost,
            failure=found.failure,
            notes=cell.notes,
        )
    )


def words(reason: Reason) -> str:
    """A reason as it is stored and shown: its finding first."""
    return f"{reason.finding or 'note'}: {reason.text}"


def without_report(spec: RunSpec, trouble: str) -> ArmReport:
    """What is reported of an arm whose run was lost."""
    arm = spec.arms[0]
    return ArmReport(
        role=arm.role,
        key=arm.key,
        outcome=Outcome.CRASHED,
        wall_s=0.0,
        folder=arm.folder,
        failure=Failure(phase=None, rank=None, message=trouble, log_tail=[]),
    )
