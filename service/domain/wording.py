"""How values appear in messages and names: as JSON, on one line, cut when long."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

_LONGEST = 60
_MOST_WORDS = 30


def show(value: Any) -> str:
    """``value`` as one line of printable JSON, at most 60 characters of it."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    if not text.isprintable():
        text = json.dumps(value, default=repr)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def found(value: Any) -> str:
    """What kind of value it is, and which: ``the string "2"``, ``a list``."""
    if value is None or isinstance(value, bool):
        return show(value)
    if isinstance(value, str):
        return f"the string {show(value)}"
    if isinstance(value, int | float):
        return f"the number {show(value)}"
    return "a list" if isinstance(value, list) else "a mapping" if isinstance(value, dict) else type(value).__name__


def listing(words: Iterable[str], last: str = "and") -> str:
    """``a, b and c``; of more than 30 the first ones and how many others there are."""
    listed = list(words) or ["nothing"]
    if len(listed) > _MOST_WORDS:
        listed[_MOST_WORDS:] = [f"{len(listed) - _MOST_WORDS:,} others"]
    *head, tail = listed
    return f"{', '.join(head)} {last} {tail}" if head else tail
