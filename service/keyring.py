"""Makes keys and sessions, and says whose they are. Used by the command line and by the API."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from service.domain import keys
from service.domain.keys import ApiKey, Scope
from service.store import Store, StoreUnavailable
from service.store.records import UnknownRecord
from service.store.repositories import access

logger = logging.getLogger(__name__)

SESSION_LIFE = timedelta(hours=12)
NOTED_EVERY = timedelta(minutes=1)
"""A key's last use is written down no more often, so that reading does not become writing."""

NOBODY = keys.digest("")
"""What a key that does not exist is compared with, so that the answer takes as long."""


@dataclass(frozen=True)
class Principal:
    """Who asks. ``key_id``: ``None`` where no key is needed. ``csrf``: what forms of his session have to bring."""

    key_id: str | None
    name: str
    scope: Scope
    csrf: str | None = None


LOCAL = Principal(None, "local user", Scope.ADMIN)
"""Whoever asks while there is no key: the service is on loopback then."""


class Refused(Exception):
    """A key or a session that opens nothing. The text says why and what to do, and never what was shown."""


class Keyring:
    """The keys in one store. Safe to share between threads."""

    def __init__(self, store: Store, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._store = store
        self._now = now
        self._locked = False

    @property
    def locked(self) -> bool:
        """Whether a key is needed: one was made, at some time. Revoking all does not open the door again."""
        if not self._locked:
            with self._store.reading() as session:
                self._locked = access.any_key(session)
        return self._locked

    def usable(self) -> bool:
        """Whether there is a key that opens something."""
        now = self._now()
        with self._store.reading() as session:
            before: str | None = None
            while page := access.list_keys(session, 100, before):
                if any(key.usable(now) for key in page):
                    return True
                before = page[-1].id
        return False

    def create(self, name: str, scope: Scope, life: timedelta | None, created_by: str) -> tuple[ApiKey, str]:
        """A new key, and its text, which cannot be had again."""
        now = self._now()
        # Ids sort by time.
        key_id = f"{int(now.timestamp()):08x}{secrets.token_hex(2)}"
        text = keys.compose(key_id, secrets.token_urlsafe(32))
        expires_at = None if life is None else now + life
        key = ApiKey(key_id, name, scope, now, created_by, expires_at, None, None)
        with self._store.transaction() as session:
            access.add_key(session, key, keys.digest(text))
        return key, text

    def revoke(self, key_id: str) -> ApiKey:
        """Have a key open nothing from now on.

        Raises:
            UnknownRecord: if there is no such key.
        """
        with self._store.transaction() as session:
            access.revoke_key(session, key_id, self._now())
            session.flush()
            return access.get_key(session, key_id).key

    def whose(self, text: str) -> Principal:
        """
        Raises:
            Refused: if it is no key, or one that opens nothing any more.
        """
        key = self._known(text)
        self._check(key)
        if key.last_used_at is None or self._now() - key.last_used_at > NOTED_EVERY:
            self._note_use(key)
        return Principal(key.id, key.name, key.scope)

    def open_session(self, text: str) -> str:
        """Let a browser in with a key; what it is recognised by from then on.

        Raises:
            Refused: see :meth:`whose`.
        """
        principal = self.whose(text)
        assert principal.key_id is not None
        token = secrets.token_urlsafe(32)
        now = self._now()
        with self._store.transaction() as session:
            access.add_session(session, keys.digest(token), principal.key_id, now + SESSION_LIFE, now)
        return token

    def whose_session(self, token: str) -> Principal:
        """
        Raises:
            Refused: if the session is over, or its key opens nothing any more.
        """
        with self._store.reading() as session:
            key = access.key_of_session(session, keys.digest(token), self._now())
        if key is None:
            raise Refused("the session is over; log in again")
        self._check(key)
        return Principal(key.id, key.name, key.scope, csrf_token(token))

    def end_session(self, token: str) -> None:
        """Ending one that is over changes nothing."""
        with self._store.transaction() as session:
            access.end_session(session, keys.digest(token))

    def _note_use(self, key: ApiKey) -> None:
        try:
            with self._store.transaction() as session:
                access.note_use(session, key.id, self._now())
        except StoreUnavailable as error:
            # Who only looks is let in by a database that takes nothing.
            logger.warning("the use of key %s was not written down: %s", key.prefix, error)

    def _known(self, text: str) -> ApiKey:
        key_id = keys.id_of(text)
        stored = None
        if key_id is not None:
            try:
                with self._store.reading() as session:
                    stored = access.get_key(session, key_id)
            except UnknownRecord:
                stored = None
        if not keys.matches(text, NOBODY if stored is None else stored.digest) or stored is None:
            raise Refused("this key is not known here; `shardproof keys list` shows those that are")
        return stored.key

    def _check(self, key: ApiKey) -> None:
        if key.revoked_at is not None:
            raise Refused(f"the key {key.prefix} was revoked; ask for a new one")
        if not key.usable(self._now()):
            raise Refused(f"the key {key.prefix} has expired; ask for a new one")


def csrf_token(session_token: str) -> str:
    """What only pages of this session can know."""
    return keys.digest(f"csrf {session_token}")
