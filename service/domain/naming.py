"""Names of cells: as written, or made from what distinguishes the cell."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from service.domain import reserved, secrecy
from service.domain.setting import Entry

LONGEST = 200
_ROOM_FOR_NUMBER = 12
_BARE = re.compile(r"[\w./:@~+-]+")


def default_names(shown: Sequence[Entry], fallback: str, taken: Iterable[str]) -> list[str]:
    """A name for each cell, such as ``tensor_parallel_size=2,enable_sp=true``.

    Args:
        shown: for each cell the settings to name it by.
        fallback: the name of a cell that has none.
        taken: names that others have. A name that is taken gets `` #2`` and so on.
    """
    parts = [{setting.label: _value(key, setting.value) for key, setting in entry.items()} for entry in shown]
    labels = _short(dict.fromkeys(key for cell in parts for key in cell))
    names = [",".join(f"{labels[key]}={value}" for key, value in cell.items()) or fallback for cell in parts]
    return _numbered([_cut(name) for name in names], set(taken))


def _short(keys: Iterable[str]) -> Mapping[str, str]:
    """Each key by as few of its last segments as tell it from all others."""
    segments = {key: key.split(".") for key in keys}
    endings = Counter(_ending(parts, n) for parts in segments.values() for n in range(1, len(parts) + 1))
    return {
        key: next((_ending(parts, n) for n in range(1, len(parts)) if endings[_ending(parts, n)] == 1), key)
        for key, parts in segments.items()
    }


def _ending(parts: Sequence[str], count: int) -> str:
    return ".".join(parts[-count:])


def _value(key: str, value: Any) -> str:
    """Strings bare where nobody could take them for something else; variables are strings anyhow."""
    if isinstance(value, str) and secrecy.is_secret(key):
        return secrecy.SHOWN
    if isinstance(value, str) and _BARE.fullmatch(value) and (reserved.is_variable(key) or not _is_json(value)):
        return value
    return _printable(value)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _printable(value: Any) -> str:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value, separators=(",", ":"))


def _cut(name: str) -> str:
    longest = LONGEST - _ROOM_FOR_NUMBER
    return name if len(name) <= longest else name[: longest - 1] + "…"


def _numbered(names: Iterable[str], taken: set[str]) -> list[str]:
    numbers: dict[str, itertools.count[int]] = {}
    result = []
    for name in names:
        free = name
        while free in taken:
            free = f"{name} #{next(numbers.setdefault(name, itertools.count(2)))}"
        taken.add(free)
        result.append(free)
    return result
