"""API keys: what one may do, how it is written, and how it is recognised.

A key is ``sp_ID_SECRET``. The id is no secret and leads to the stored key; of the whole text only a hash is stored.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from service.domain.wording import show

MARK = "sp_"
"""What every key begins with, so that scanners find one that was published by mistake."""

LONGEST_LIFE = timedelta(days=3650)
DEFAULT_LIFE = "90d"
NEVER = "never"

_KEY = re.compile(r"sp_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_LIFETIME = re.compile(r"([1-9][0-9]{0,5})([hdw])")
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


class Scope(StrEnum):
    """What a key may do. Each scope may do what those before it may."""

    READ = "read"
    SUBMIT = "submit"
    ADMIN = "admin"

    def allows(self, needed: Scope) -> bool:
        order = list(Scope)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True)
class ApiKey:
    """A stored key, without what it is recognised by. ``created_by``: id of a key, or in words who it was."""

    id: str
    name: str
    scope: Scope
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None

    @property
    def prefix(self) -> str:
        """What is shown of the key."""
        return f"{MARK}{self.id}"

    def usable(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


def compose(key_id: str, secret: str) -> str:
    """The key as its owner is given it."""
    return f"{MARK}{key_id}_{secret}"


def id_of(text: str) -> str | None:
    """The id in a key; ``None`` when the text is no key."""
    match = _KEY.fullmatch(text)
    return None if match is None else match[1]


def digest(text: str) -> str:
    """What is stored of a key or of a session: a hash that is quick to make, as 256 random bits cannot be guessed."""
    return hashlib.sha256(text.encode()).hexdigest()


def matches(text: str, stored: str) -> bool:
    """Whether ``text`` is what ``stored`` was made of; takes as long whichever part is wrong."""
    return hmac.compare_digest(digest(text), stored)


def lifetime(text: str) -> timedelta | None:
    """``12h``, ``90d``, ``8w``; ``never`` is ``None``.

    Raises:
        ValueError: if it is none of these, or longer than ten years.
    """
    if text == NEVER:
        return None
    match = _LIFETIME.fullmatch(text)
    life = None if match is None else timedelta(**{_UNITS[match[2]]: int(match[1])})
    if life is None or life > LONGEST_LIFE:
        raise ValueError(
            f"{show(text)} is no lifetime; write hours, days or weeks as in 12h, 90d or 8w, at most 3650d, or {NEVER}"
        )
    return life
