"""Queries on the audit trail. It is added to; of an entry only the outcome is filled in, once."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.store.access_models import AuditRow


@dataclass(frozen=True)
class NewAudit:
    """Who (``key_id``, ``None`` without keys; ``actor`` is its name) did what to which ``target``, from where.

    ``action``: a method, or a command. ``status``: of the answer, ``None`` where there was none.
    """

    at: datetime
    key_id: str | None
    actor: str
    action: str
    target: str
    status: int | None = None
    client: str | None = None


@dataclass(frozen=True, kw_only=True)
class AuditRecord(NewAudit):
    """``id`` grows with every entry."""

    id: int


def add_audit(session: Session, entry: NewAudit) -> int:
    """Write an entry down; its id."""
    row = AuditRow(**asdict(entry))
    session.add(row)
    session.flush()
    return row.id


def conclude_audit(session: Session, entry_id: int, target: str, status: int | None) -> None:
    """What came of an entry that had no status yet."""
    row = session.get_one(AuditRow, entry_id)
    if row.status is None:
        row.target, row.status = target, status


def list_audit(session: Session, limit: int, before: int | None = None, key_id: str | None = None) -> list[AuditRecord]:
    """Newest first; with ``before`` only entries older than that one, with ``key_id`` those of that key."""
    query = select(AuditRow).order_by(AuditRow.id.desc()).limit(limit)
    if before is not None:
        query = query.where(AuditRow.id < before)
    if key_id is not None:
        query = query.where(AuditRow.key_id == key_id)
    return [_record(row) for row in session.scalars(query)]


def _record(row: AuditRow) -> AuditRecord:
    return AuditRecord(
        id=row.id,
        at=row.at,
        key_id=row.key_id,
        actor=row.actor,
        action=row.action,
        target=row.target,
        status=row.status,
        client=row.client,
    )
