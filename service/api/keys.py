"""API keys: made, listed, changed and revoked by who has one with the scope ``admin``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from service.api.dependencies import StoreDependency
from service.api.etags import IfMatchDependency, check_match, etag
from service.api.principal import ADMIN_ONLY, KeyringDependency, PrincipalDependency
from service.api.problems import RESPONSES
from service.domain.keys import DEFAULT_LIFE, ApiKey, Scope, lifetime
from service.store.repositories import access

router = APIRouter(prefix="/v1/keys", tags=["keys"], responses=RESPONSES, dependencies=[ADMIN_ONLY])


def _printable(name: str) -> str:
    if not name.isprintable() or not name.strip():
        raise ValueError("a name has printable characters")
    return name


def _lifetime(text: str) -> str:
    lifetime(text)
    return text


Name = Annotated[str, Field(min_length=1, max_length=100, examples=["nightly CI"]), AfterValidator(_printable)]
Lifetime = Annotated[
    str,
    Field(
        description="Hours, days or weeks from now, at most 3650d; or `never`", max_length=10, examples=["12h", "90d"]
    ),
    AfterValidator(_lifetime),
]


class NewKey(BaseModel):
    """A key to make."""

    model_config = ConfigDict(extra="forbid")

    name: Name
    scope: Scope
    lifetime: Lifetime = DEFAULT_LIFE


class KeyChange(BaseModel):
    """What may be changed of a key: its name, and until when it opens, from now."""

    model_config = ConfigDict(extra="forbid")

    name: Name | None = None
    lifetime: Lifetime | None = None


class Key(BaseModel):
    """A key, of which only the prefix is known. ``usable``: neither revoked nor expired."""

    id: str
    prefix: str
    name: str
    scope: Scope
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    usable: bool


class CreatedKey(Key):
    """``key`` is shown this once."""

    key: str


class KeyPage(BaseModel):
    """``next`` is the value of ``before`` for the page of older keys, absent on the last one."""

    keys: list[Key]
    next: str | None


@router.post("", status_code=HTTPStatus.CREATED)
def create_key(
    new: NewKey, response: Response, keyring: KeyringDependency, principal: PrincipalDependency
) -> CreatedKey:
    """Make a key. From the first one on every request needs one."""
    key, text = keyring.create(new.name, new.scope, lifetime(new.lifetime), principal.key_id or principal.name)
    response.headers["Location"] = f"/v1/keys/{key.id}"
    response.headers["Cache-Control"] = "no-store"
    return CreatedKey(**_shown(key).model_dump(), key=text)


@router.get("")
def list_keys(
    store: StoreDependency,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    before: Annotated[str | None, Query(description="Only keys older than this one: `next` of a page")] = None,
) -> KeyPage:
    """Keys, newest first, those that open nothing any more included."""
    with store.reading() as session:
        found = access.list_keys(session, limit + 1, before)
    page = found[:limit]
    return KeyPage(keys=[_shown(key) for key in page], next=page[-1].id if len(found) > limit else None)


@router.get("/{key_id}")
def get_key(key_id: str, response: Response, store: StoreDependency) -> Key:
    """One key. Its ETag is what a change has to bring."""
    with store.reading() as session:
        key = access.get_key(session, key_id).key
    response.headers["ETag"] = _etag(key)
    return _shown(key)


@router.patch("/{key_id}")
def change_key(
    key_id: str, change: KeyChange, if_match: IfMatchDependency, response: Response, store: StoreDependency
) -> Key:
    """Change a key's name, or until when it opens. What it may do stays: that would be another key."""
    with store.transaction() as session:
        before = access.lock_key(session, key_id)
        check_match(if_match, _etag(before))
        access.change_key(session, key_id, change.name or before.name, _expiry(change, before))
        session.flush()
        key = access.get_key(session, key_id).key
    response.headers["ETag"] = _etag(key)
    return _shown(key)


@router.delete("/{key_id}")
def revoke_key(key_id: str, keyring: KeyringDependency) -> Key:
    """From now on the key, and every session that was opened with it, opens nothing. Revoking twice is no error."""
    return _shown(keyring.revoke(key_id))


def _expiry(change: KeyChange, before: ApiKey) -> datetime | None:
    if change.lifetime is None:
        return before.expires_at
    life: timedelta | None = lifetime(change.lifetime)
    return None if life is None else datetime.now(UTC) + life


def _etag(key: ApiKey) -> str:
    times = [None if moment is None else moment.isoformat() for moment in (key.expires_at, key.revoked_at)]
    return etag(key.id, key.name, *times)


def _shown(key: ApiKey) -> Key:
    return Key(
        id=key.id,
        prefix=key.prefix,
        name=key.name,
        scope=key.scope,
        created_at=key.created_at,
        created_by=key.created_by,
        expires_at=key.expires_at,
        last_used_at=key.last_used_at,
        revoked_at=key.revoked_at,
        usable=key.usable(datetime.now(UTC)),
    )
