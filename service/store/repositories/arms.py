"""Queries on shared arms: each is leased and run once, whoever needs it."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from service.store.models import ArmRow
from service.store.records import ArmRecord, ArmState, UnknownRecord
from workers.protocol import ArmReport, Outcome, Role


def lease_arm(session: Session, key: str, role: Role, folder: str, owner: str) -> bool:
    """Whether the caller is the one to run this arm. If not, somebody runs it or has run it: see ``get_arm``."""
    arm = ArmRow(key=key, role=role, state=ArmState.LEASED, folder=folder, owner=owner)
    try:
        with session.begin_nested():
            session.add(arm)
    except IntegrityError:
        return False
    return True


def hold_arm(session: Session, key: str, role: Role, folder: str, owner: str) -> None:
    """Lease an arm, whatever became of it before; who asks has the lease of its job."""
    row = session.get(ArmRow, key, with_for_update=True)
    if row is None:
        session.add(ArmRow(key=key, role=role, state=ArmState.LEASED, folder=folder, owner=owner))
    else:
        row.state, row.folder, row.owner, row.report = ArmState.LEASED, folder, owner, None
    session.flush()


def get_arm(session: Session, key: str) -> ArmRecord | None:
    row = session.get(ArmRow, key)
    return None if row is None else _record(row)


def finish_arm(session: Session, key: str, report: ArmReport) -> None:
    """End a leased arm with its report: ``done`` when its outcome is ``ok``, else ``failed``."""
    row = session.get(ArmRow, key, with_for_update=True)
    if row is None:
        raise UnknownRecord("arm", key)
    row.state = ArmState.DONE if report.outcome is Outcome.OK else ArmState.FAILED
    row.report = report.model_dump(mode="json")


def forget_arm(session: Session, key: str) -> None:
    """Drop an arm that has ended, so that the next one who needs it runs it again. A leased arm stays."""
    session.execute(delete(ArmRow).where(ArmRow.key == key, ArmRow.state != ArmState.LEASED))


def release_arms(session: Session, owner_alive: Callable[[str], bool]) -> list[str]:
    """Drop the leases of controller processes that are gone. Returns the keys that are free again."""
    query = select(ArmRow.key, ArmRow.owner).where(ArmRow.state == ArmState.LEASED).order_by(ArmRow.key)
    leases = session.execute(query).all()
    dead = {owner for owner in {owner for _, owner in leases} if not owner_alive(owner)}
    keys = [key for key, owner in leases if owner in dead]
    session.execute(delete(ArmRow).where(ArmRow.key.in_(keys), ArmRow.state == ArmState.LEASED))
    return keys


def _record(row: ArmRow) -> ArmRecord:
    return ArmRecord(
        key=row.key,
        role=Role(row.role),
        state=ArmState(row.state),
        folder=row.folder,
        report=None if row.report is None else ArmReport.model_validate(row.report),
        owner=row.owner,
    )
