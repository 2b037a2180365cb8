"""Cursors of lists: where a page ended, as opaque text. A cursor names its list, so that none is read as another's."""

from __future__ import annotations

import base64
import binascii
import json

Key = tuple[str | int, ...]

LONGEST = 512
"""Characters of a cursor that is looked at at all."""


class BadCursor(ValueError):
    """A text that is no cursor of this list."""

    def __init__(self, of: str) -> None:
        super().__init__(
            f"this is no cursor of the list of {of}; pass `next` of a page of that list, unchanged, or none to begin"
        )


def encode(of: str, *key: str | int) -> str:
    """The cursor behind the item with this ``key`` in the list called ``of``."""
    text = json.dumps([of, *key], separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(of: str, cursor: str, *types: type) -> Key:
    """The key in ``cursor``, of these ``types``.

    Raises:
        BadCursor: if it is not one that ``encode`` made for this list.
    """
    if len(cursor) > LONGEST:
        raise BadCursor(of)
    try:
        found = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise BadCursor(of) from error
    if not isinstance(found, list) or [type(part) for part in found] != [str, *types] or found[0] != of:
        raise BadCursor(of)
    key = tuple(found[1:])
    if not all(map(_may_be_a_key, key)) or encode(of, *key) != cursor:
        raise BadCursor(of)
    return key


def _may_be_a_key(part: str | int) -> bool:
    """No database has anything else: text without NUL that is Unicode, numbers of 64 bits."""
    if isinstance(part, int):
        return 0 <= part < 2**63
    return "\0" not in part and not any("\ud800" <= letter <= "\udfff" for letter in part)
