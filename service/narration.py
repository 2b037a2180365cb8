"""Logs what happens to sweeps, as their store commits it: what ended, and what engines do on which rank."""

from __future__ import annotations

import logging

from service.store.notes import CellEnded, EventsStored, RunEnded
from service.store.records import NewEvent
from service.store.schedule_records import Fire
from workers.protocol import ArmReport

logger = logging.getLogger(__name__)


def narrate(what: object) -> None:
    """An observer of the store."""
    match what:
        case CellEnded():
            about = {"sweep": what.sweep_id, "cell": what.cell_id, "verdict": str(what.verdict), "ok": what.ok}
            logger.info("cell %s ended", what.name, extra=about)
        case RunEnded():
            about = {"sweep": what.sweep_id, "cell": what.cell_id, "run": what.run_id, "state": str(what.state)}
            if what.failure is None:
                logger.info("run ended", extra=about)
            else:
                logger.warning("run ended: %s", what.failure, extra=about)
        case EventsStored():
            for event in what.events:
                _narrate_event(event)
        case Fire():
            _narrate_fire(what)


def _narrate_event(event: NewEvent) -> None:
    about = {
        "sweep": event.sweep_id,
        "cell": event.cell_id,
        "run": event.run_id,
        "arm": None if event.arm is None else str(event.arm),
        "rank": event.rank,
    }
    known = {key: value for key, value in about.items() if value is not None}
    if event.kind == "phase":
        logger.debug("phase %s", event.data.get("name"), extra=known)
    elif event.kind == "arm-finished":
        _narrate_arm(ArmReport.model_validate(event.data), known)
    else:
        logger.info("%s", event.kind, extra=known)


def _narrate_arm(report: ArmReport, about: dict[str, str | int]) -> None:
    about = {**about, "outcome": str(report.outcome), "seconds": round(report.wall_s)}
    if report.failure is None:
        logger.info("arm finished", extra=about)
        return
    where = {"phase": report.failure.phase, "rank": report.failure.rank}
    known = {key: value for key, value in where.items() if value is not None}
    logger.warning("arm finished: %s", report.failure.message, extra={**about, **known})


def _narrate_fire(fire: Fire) -> None:
    about = {"schedule": fire.schedule, "cause": str(fire.cause), "state": str(fire.state)}
    if fire.due_at is not None:
        about["due"] = fire.due_at.isoformat()
    if fire.sweep_id is not None:
        about["sweep"] = fire.sweep_id
    if fire.detail is None:
        logger.info("schedule served", extra=about)
    else:
        logger.warning("schedule served: %s", fire.detail, extra=about)
