"""Runs: one attempt at a cell, what it took and what it found out."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter
from starlette.responses import JSONResponse

from service.api.dependencies import StoreDependency
from service.api.paging import After, Limit, cut
from service.api.problems import RESPONSES
from service.api.resources import Run, RunArm, RunPage, RunPhases, RunResiduals, StartPhases
from service.domain import cursor
from service.store import repositories
from service.store.plain import finite
from service.store.records import RunRecord
from service.store.repositories import pages
from workers.protocol import ArmReport, ArmSpec, TimedStart

RUNS = "runs"

router = APIRouter(prefix="/v1", tags=["runs"], responses=RESPONSES)


@router.get("/sweeps/{sweep_id}/runs")
def list_runs(sweep_id: str, store: StoreDependency, limit: Limit = 50, after: After = None) -> RunPage:
    """The runs of a sweep by cell and attempt, without what they found out."""
    behind = None
    if after is not None:
        cell_id, attempt = cursor.decode(RUNS, after, str, int)
        behind = (str(cell_id), int(attempt))
    with store.reading() as session:
        repositories.get_sweep(session, sweep_id)
        found = pages.page_of_runs(session, sweep_id, behind, limit + 1)
    page, last = cut(found, limit)
    return RunPage(runs=page, next=None if last is None else cursor.encode(RUNS, last.cell_id, last.attempt))


@router.get("/runs/{run_id}")
def get_run(run_id: str, store: StoreDependency) -> Run:
    """One attempt at a cell: how far it got, and its arms in the order they are started."""
    with store.reading() as session:
        summary = pages.run_summary(session, run_id)
        run = repositories.get_run(session, run_id)
    return Run(**asdict(summary), arms=[_arm(spec, run) for spec in run.spec.arms])


@router.get("/runs/{run_id}/phases")
def get_phases(run_id: str, store: StoreDependency) -> RunPhases:
    """The phases of every timed start, rank by rank, in seconds."""
    with store.reading() as session:
        run = repositories.get_run(session, run_id)
    return RunPhases(starts=[] if run.evidence is None else [_start(item) for item in run.evidence.compile.starts])


@router.get("/runs/{run_id}/residuals", response_model=RunResiduals)
def get_residuals(run_id: str, store: StoreDependency) -> JSONResponse:
    """Every comparison of residuals: how much was compared, scores by site and rank, and the first wrong place."""
    with store.reading() as session:
        run = repositories.get_run(session, run_id)
    comparisons = [] if run.evidence is None else run.evidence.residual
    # Numbers that JSON does not have stand as in the report, where a model would make them null: not looked at.
    return JSONResponse(finite({"comparisons": [comparison.model_dump(mode="json") for comparison in comparisons]}))


def _arm(spec: ArmSpec, run: RunRecord) -> RunArm:
    report = _report(spec, run)
    return RunArm(
        role=spec.role,
        repeat=spec.repeat,
        outcome=None if report is None else report.outcome,
        wall_s=None if report is None else report.wall_s,
        failure=None if report is None or report.failure is None else report.failure.message,
    )


def _report(spec: ArmSpec, run: RunRecord) -> ArmReport | None:
    reports = [] if run.evidence is None else run.evidence.arms
    return next((report for report in reports if (report.role, report.repeat) == (spec.role, spec.repeat)), None)


def _start(item: TimedStart) -> StartPhases:
    times = item.times.model_dump(include={"total_s": True, "ranks": {"__all__": _OF_A_RANK}})
    return StartPhases(arm=item.role, repeat=item.repeat, **times)


_OF_A_RANK = {"rank", "total_s", "phases", "unaccounted_s"}
