"""Drive one sweep to its end: shared arms first, then the cells, then the cells that share their results.

A failing cell never ends a sweep: whatever goes wrong in a run becomes that cell's finding.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeVar

from service.dispatch.cluster import RunLost, execute, slots
from service.dispatch.engines import Engine
from service.dispatch.plan import Plan, PlannedCell
from service.dispatch.runs import Workplace
from service.domain.arms import ArmNeed, RunNeeds
from service.domain.arms import needs as needs_of
from service.domain.case import Case, Judgement, Reason
from service.domain.findings import shared_arm
from service.domain.judge import conclude, judge
from service.domain.lifecycle import State
from service.domain.verdict import Verdict
from service.settings import Settings
from service.store import Store, repositories
from service.store.records import NewEvent
from workers.protocol import ArmReport, Check, Event, Evidence, Failure, Outcome, Role, RunSpec, Shape

logger = logging.getLogger(__name__)

Item = TypeVar("Item")

_ENDS = {Verdict.CRASHED: State.FAILED, Verdict.TIMED_OUT: State.TIMED_OUT, Verdict.CANCELLED: State.CANCELLED}


@dataclass(frozen=True)
class Found:
    """What became of a cell's run: ``lost`` names shared arms that did not come through, ``failure`` a lost run."""

    evidence: Evidence | None
    lost: tuple[Reason, ...] = ()
    failure: str | None = None


class SweepDriver:
    """Runs the cells of one accepted sweep. ``executor`` bounds how many runs wait for or hold slots at once."""

    def __init__(self, sweep_id: str, plan: Plan, settings: Settings, store: Store, executor: Executor) -> None:
        self._id = sweep_id
        self._plan = plan
        self._settings = settings
        self._store = store
        self._executor = executor
        self._places = {name: self._workplace(engine) for name, engine in plan.engines.items()}
        self._lost: dict[str, ArmReport] = {}
        self._found: dict[str, Found] = {}

    def _workplace(self, engine: Engine) -> Workplace:
        matrix, environments = self._plan.matrix, self._plan.environments
        return Workplace(
            sweep_id=self._id,
            settings=engine.settings,
            environment=environments[engine.name],
            timeouts=matrix.timeouts,
            repeat=matrix.repeat,
            engine=engine.spec,
            traces=matrix.traces,
        )

    def _place(self, item: PlannedCell) -> Workplace:
        return self._places[item.cell.environment]

    def drive(self) -> None:
        """Return when every cell has its verdict."""
        self._describe_environments()
        for item in self._plan.cells:
            if item.cannot_run is not None:
                self._conclude_unrun(item, item.cannot_run)
        own = [item for item in self._plan.cells if item.duplicate_of is None and item.cannot_run is None]
        wanted = {item.cell.id: needs_of(item.cell, _shape(item), item.batch) for item in own}
        self._all(self._run_shared, self._shared_of(own, wanted))
        self._all(lambda item: self._run_cell(item, wanted[item.cell.id]), own)
        for item in self._plan.cells:
            if item.duplicate_of is not None:
                self._conclude(item, self._found[item.duplicate_of.id])
        with self._store.transaction() as session:
            repositories.end_sweep(session, self._id)

    def _describe_environments(self) -> None:
        """What the environments of this sweep are made of, beside its other artifacts."""
        for name, engine in self._plan.engines.items():
            if engine.description is not None:
                folder = self._places[name].root / "environments"
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"{name}.json").write_text(json.dumps(engine.description, indent=1))

    def _all(self, work: Callable[[Item], None], items: Sequence[Item]) -> None:
        for future in [self._executor.submit(work, item) for item in items]:
            future.result()

    # --- shared arms -----------------------------------------------------------------------------------------------

    def _shared_of(
        self, cells: Sequence[PlannedCell], wanted: dict[str, RunNeeds]
    ) -> list[tuple[ArmNeed, PlannedCell]]:
        """Each shared arm once, with the first cell that needs it."""
        found: dict[str, tuple[ArmNeed, PlannedCell]] = {}
        for item in cells:
            for need in wanted[item.cell.id].shared:
                found.setdefault(self._place(item).shared_key(need), (need, item))
        return list(found.values())

    def _run_shared(self, job: tuple[ArmNeed, PlannedCell]) -> None:
        need, item = job
        place = self._place(item)
        key = place.shared_key(need)
        with self._store.transaction() as session:
            repositories.lease_arm(session, key, need.role, str(place.shared_folder(need)), self._id)
        report = self._execute_shared(need, item)
        if report.outcome is not Outcome.OK:
            self._lost[key] = report
        with self._store.transaction() as session:
            repositories.finish_arm(session, key, report)

    def _execute_shared(self, need: ArmNeed, item: PlannedCell) -> ArmReport:
        spec = self._place(item).shared_run(need, _shape(item))
        report, trouble = None, "it ended without a report"
        try:
            for event in self._events(spec, item):
                if event.kind == "arm-finished":
                    report = ArmReport.model_validate(event.data)
                if event.kind != "evidence":
                    self._note(event, item)
        except RunLost as lost:
            trouble = str(lost)
        except Exception as error:
            logger.exception("%s arm of sweep %s", need.role, self._id)
            trouble = f"it could not be carried out: {type(error).__name__}: {error}"
        return report or _lost_arm(spec, trouble)

    def _with_stand_ins(self, evidence: Evidence | None, item: PlannedCell, wanted: RunNeeds) -> Evidence | None:
        """A shared arm that would have been the cell's own died for this cell too: log and all."""
        reports = [self._lost.get(self._place(item).shared_key(need)) for need in wanted.stand_ins]
        if evidence is None:
            return None
        return evidence.model_copy(update={"arms": [*evidence.arms, *filter(None, reports)]})

    def _lost_of(self, item: PlannedCell, wanted: RunNeeds, own: bool) -> tuple[Reason, ...]:
        """Findings about shared arms; ``own``: about those that are the cell's own as well."""
        needs = [need for need in wanted.shared if own or need not in wanted.stand_ins]
        lost = [(need, self._lost.get(self._place(item).shared_key(need))) for need in needs]
        return tuple(shared_arm(report, own=need in wanted.stand_ins) for need, report in lost if report is not None)

    # --- cells -------------------------------------------------------------------------------------------------------

    def _run_cell(self, item: PlannedCell, wanted: RunNeeds) -> None:
        audit_only = item.cell.checks == (Check.AUDIT,)
        found = Found(None) if audit_only else self._execute_cell(item, wanted)
        self._found[item.cell.id] = found
        self._conclude(item, found)

    def _execute_cell(self, item: PlannedCell, wanted: RunNeeds) -> Found:
        run_id = f"{self._id}-{item.cell.id}-{secrets.token_hex(3)}"
        spec = self._place(item).cell_run(run_id, item.cell, wanted, _shape(item), set(self._lost), item.batch)
        with self._store.transaction() as session:
            repositories.create_run(session, self._id, item.cell.id, spec, State.LEASED)
            repositories.set_cell_state(session, self._id, item.cell.id, State.LEASED)
        evidence, failure = self._follow(spec, item)
        evidence = self._with_stand_ins(evidence, item, wanted)
        found = Found(evidence, self._lost_of(item, wanted, own=evidence is None), failure)
        with self._store.transaction() as session:
            repositories.finish_run(session, run_id, _end(_judge(item, found), found), evidence, failure)
        return found

    def _follow(self, spec: RunSpec, item: PlannedCell) -> tuple[Evidence | None, str | None]:
        """The run's evidence, or why there is none."""
        evidence = None
        try:
            for number, event in enumerate(self._events(spec, item)):
                if number == 0:
                    self._set_running(spec, item)
                if event.kind == "evidence":
                    evidence = Evidence.model_validate(event.data)
                else:
                    self._note(event, item, spec.run_id)
        except RunLost as lost:
            return None, str(lost)
        except Exception as error:
            logger.exception("run %s of cell %s", spec.run_id, item.cell.name)
            return None, f"the run could not be carried out: {type(error).__name__}: {error}"
        return evidence, None

    def _events(self, spec: RunSpec, item: PlannedCell) -> Iterator[Event]:
        only_reference = all(arm.role is Role.REFERENCE for arm in spec.arms)
        ranks = 1 if only_reference else spec.shape.tensor_parallel_size * spec.shape.pipeline_parallel_size
        for raw in execute(spec, slots(ranks, self._place(item).environment.devices), self._settings):
            yield Event.model_validate(raw)

    def _set_running(self, spec: RunSpec, item: PlannedCell) -> None:
        with self._store.transaction() as session:
            repositories.set_run_state(session, spec.run_id, State.RUNNING)
            repositories.set_cell_state(session, self._id, item.cell.id, State.RUNNING)

    def _note(self, event: Event, item: PlannedCell, run_id: str | None = None) -> None:
        with self._store.transaction() as session:
            repositories.add_events(session, [NewEvent.of(event, self._id, item.cell.id, run_id)])

    def _conclude(self, item: PlannedCell, found: Found) -> None:
        judgement = _judge(item, found)
        self._store_judgement(item, judgement, _end(judgement, found))

    def _conclude_unrun(self, item: PlannedCell, why: Reason) -> None:
        """An environment that could not be had is no engine's fault."""
        state = State.CRASHED if why.finding is Verdict.CRASHED else State.FINISHED
        self._store_judgement(item, conclude([why], item.cell.expect), state)

    def _store_judgement(self, item: PlannedCell, judgement: Judgement, state: State) -> None:
        with self._store.transaction() as session:
            repositories.conclude_cell(
                session,
                self._id,
                item.cell.id,
                judgement.verdict,
                judgement.ok,
                [words(reason) for reason in judgement.reasons],
                state,
            )


def words(reason: Reason) -> str:
    """A reason as it is stored and shown: its finding first."""
    return f"{reason.finding or 'note'}: {reason.text}"


def _judge(item: PlannedCell, found: Found) -> Judgement:
    return judge(
        Case(
            checks=item.cell.checks,
            expect=item.cell.expect,
            patches=item.cell.patches,
            shape=_shape(item),
            changes=item.audited.changes,
            evidence=found.evidence,
            duplicate_of=item.duplicate_of.name if item.duplicate_of else None,
            lost=found.lost,
            failure=found.failure,
            notes=item.notes,
        )
    )


def _end(judgement: Judgement, found: Found) -> State:
    """Failed is the engine's fault, crashed the infrastructure's."""
    return State.CRASHED if found.failure else _ENDS.get(judgement.verdict, State.FINISHED)


def _shape(item: PlannedCell) -> Shape:
    if item.audited.shape is None:
        raise ValueError(f"cell {item.cell.name} was refused at audit and cannot be run")
    return item.audited.shape


def _lost_arm(spec: RunSpec, trouble: str) -> ArmReport:
    arm = spec.arms[0]
    return ArmReport(
        role=arm.role,
        key=arm.key,
        outcome=Outcome.CRASHED,
        wall_s=0.0,
        folder=arm.folder,
        failure=Failure(phase=None, rank=None, message=trouble, log_tail=[]),
    )
