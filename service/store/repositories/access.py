"""Queries on keys, sessions and submissions."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import delete, exists, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from service.domain.keys import ApiKey, Scope
from service.store.access_models import KeyRow, SessionRow, SubmissionRow
from service.store.models import SweepRow
from service.store.records import UnknownRecord


class StoredKey(NamedTuple):
    """A key and what it is recognised by."""

    key: ApiKey
    digest: str


class Submission(NamedTuple):
    """What an ``Idempotency-Key`` stands for. ``stored``: there is that sweep by now."""

    digest: str
    sweep_id: str
    stored: bool


def add_key(session: Session, key: ApiKey, digest: str) -> None:
    """Store a new key."""
    row = KeyRow(
        id=key.id,
        name=key.name,
        scope=key.scope,
        digest=digest,
        created_at=key.created_at,
        created_by=key.created_by,
        expires_at=key.expires_at,
        last_used_at=key.last_used_at,
        revoked_at=key.revoked_at,
    )
    session.add(row)
    session.flush()


def get_key(session: Session, key_id: str) -> StoredKey:
    row = _key(session, key_id)
    return StoredKey(_record(row), row.digest)


def list_keys(session: Session, limit: int, before: str | None = None) -> list[ApiKey]:
    """Newest first, by id; with ``before`` only those older than that key."""
    query = select(KeyRow).order_by(KeyRow.id.desc()).limit(limit)
    if before is not None:
        query = query.where(KeyRow.id < before)
    return [_record(row) for row in session.scalars(query)]


def any_key(session: Session) -> bool:
    """Whether a key was ever made, usable or not."""
    return bool(session.scalar(select(exists(select(KeyRow.id)))))


def lock_key(session: Session, key_id: str) -> ApiKey:
    """The key as it is, and as it stays until this unit of work ends."""
    return _record(_key(session, key_id, locked=True))


def change_key(session: Session, key_id: str, name: str, expires_at: datetime | None) -> None:
    row = _key(session, key_id)
    row.name, row.expires_at = name, expires_at


def revoke_key(session: Session, key_id: str, now: datetime) -> None:
    """From now on the key and its sessions open nothing. Revoking it again changes nothing."""
    row = _key(session, key_id)
    row.revoked_at = row.revoked_at or now
    session.execute(delete(SessionRow).where(SessionRow.key_id == key_id))


def note_use(session: Session, key_id: str, now: datetime) -> None:
    session.execute(update(KeyRow).where(KeyRow.id == key_id).values(last_used_at=now))


def add_session(session: Session, digest: str, key_id: str, expires_at: datetime, now: datetime) -> None:
    """Store a session, and forget those that are over."""
    session.execute(delete(SessionRow).where(SessionRow.expires_at < now))
    session.add(SessionRow(digest=digest, key_id=key_id, expires_at=expires_at))
    session.flush()


def key_of_session(session: Session, digest: str, now: datetime) -> ApiKey | None:
    """Whose session it is; ``None`` when there is none, or none any more."""
    query = (
        select(KeyRow)
        .join(SessionRow, SessionRow.key_id == KeyRow.id)
        .where(SessionRow.digest == digest, SessionRow.expires_at > now)
    )
    row = session.scalars(query).one_or_none()
    return None if row is None else _record(row)


def end_session(session: Session, digest: str) -> None:
    session.execute(delete(SessionRow).where(SessionRow.digest == digest))


def reserve(
    session: Session, key_id: str, idempotency_key: str, digest: str, sweep_id: str, now: datetime
) -> Submission:
    """What ``idempotency_key`` of this API key stands for: what was stored under it, or what is given here."""
    try:
        with session.begin_nested():
            row = SubmissionRow(
                key_id=key_id, idempotency_key=idempotency_key, digest=digest, sweep_id=sweep_id, created_at=now
            )
            session.add(row)
        return Submission(digest, sweep_id, False)
    except IntegrityError:
        row = session.get_one(SubmissionRow, (key_id, idempotency_key))
        return Submission(row.digest, row.sweep_id, session.get(SweepRow, row.sweep_id) is not None)


def release(session: Session, key_id: str, idempotency_key: str) -> None:
    """Forget a submission that came to nothing."""
    where = (SubmissionRow.key_id == key_id, SubmissionRow.idempotency_key == idempotency_key)
    session.execute(delete(SubmissionRow).where(*where))


def forget_submissions(session: Session, before: datetime) -> None:
    session.execute(delete(SubmissionRow).where(SubmissionRow.created_at < before))


def sweep_exists(session: Session, sweep_id: str) -> bool:
    return session.get(SweepRow, sweep_id) is not None


def _key(session: Session, key_id: str, *, locked: bool = False) -> KeyRow:
    row = session.get(KeyRow, key_id, with_for_update=locked)
    if row is None:
        raise UnknownRecord("key", key_id)
    return row


def _record(row: KeyRow) -> ApiKey:
    return ApiKey(
        id=row.id,
        name=row.name,
        scope=Scope(row.scope),
        created_at=row.created_at,
        created_by=row.created_by,
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
        revoked_at=row.revoked_at,
    )
