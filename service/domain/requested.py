"""Settings as written → flat, known, checked settings.

``{"compilation_config": {"mode": 3}}`` and ``{"compilation_config.mode": 3}`` are the same. ``null`` at a key that
others reach into stands for ``null`` at each of those.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Any

from service.domain import reserved
from service.domain.annotations import expectation
from service.domain.errors import Problems
from service.domain.nearest import nearest
from service.domain.place import Path
from service.domain.setting import Setting
from service.domain.wording import found, show
from workers.protocol import Catalogue

ENTRY_WORDS = ("name", "expect", "checks")
"""What an include entry may hold besides settings."""

_MISPLACED = {
    **dict.fromkeys(
        ("include", "exclude", "matrix", "timeouts", "repeat", "traces", "environments"),
        "stands at the top of the file, beside matrix",
    ),
    "name": "stands at the top of the file, or in an entry of include",
    "checks": "stands at the top of the file, or in an entry of include",
    "expect": "stands in an entry of include",
}

_MOST_VARIABLES = 500


class Reader:
    """Reads settings against one catalogue, and notes everything that is wrong with them."""

    def __init__(self, catalogue: Catalogue, problems: Problems, environments: Collection[str] = ()) -> None:
        self._environments = environments
        self._known = catalogue.keys | reserved.KEYS
        self._problems = problems
        self._variables: set[str] = set()
        self._leaves = cache(self._find_leaves)
        self._nearest = cache(self._find_nearest)

    def mapping(self, written: dict[str, Any], path: Path, words: tuple[str, ...] = ()) -> dict[str, Setting]:
        """The settings in a mapping, except for the keys ``words``, which are somebody else's to read."""
        into: dict[str, Setting] = {}
        for key, value in written.items():
            if key not in words:
                self._read(key, value, (*path, key), into, words)
        return into

    def axis_value(self, key: str, value: Any, path: Path) -> dict[str, Setting]:
        """The settings that one value of an axis stands for: several when it is a mapping."""
        into: dict[str, Setting] = {}
        self._read(key, value, path, into, ())
        return into

    def knows(self, key: str, path: Path) -> bool:
        """Whether there is such a key; if there is none, that is noted."""
        return self._known_key(key, path, ())

    def check_amount(self) -> None:
        """Note it when more variables were named than cells can carry; of all other keys there are only so many."""
        if len(self._variables) > _MOST_VARIABLES:
            message = f"{len(self._variables):,} environment variables; at most {_MOST_VARIABLES:,} are allowed"
            self._problems.add("too-large", message, (), "Set fewer")

    def _read(self, key: str, value: Any, path: Path, into: dict[str, Setting], words: tuple[str, ...]) -> None:
        if not self._known_key(key, path, words):
            return
        if key in self._known and self._known[key].nested:
            self._read_nested(key, value, path, into)
        else:
            self._put(into, key, Setting(self._checked(key, value, path), path, key))

    def _known_key(self, key: str, path: Path, words: tuple[str, ...]) -> bool:
        if key in self._known:
            return True
        if reserved.is_variable(key):
            self._variables.add(key)
            return reserved.check_variable_name(key, path, self._problems)
        hint = None if self._problems.full else self._advice(key, words)
        self._problems.add("unknown-key", f"unknown key {show(key)}", path, hint)
        return False

    def _read_nested(self, key: str, value: Any, path: Path, into: dict[str, Setting]) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                self._read(f"{key}.{name}", inner, (*path, name), into, ())
        elif value is None and key != reserved.ENV:
            for leaf in self._leaves(key):
                self._put(into, leaf, Setting(None, path, key))
        else:
            message = f"wrong type: {key} expects a mapping of settings, found {found(value)}"
            self._problems.add("wrong-type", message, path, f"Write its settings below it, or as {key}.NAME")

    def _put(self, into: dict[str, Setting], key: str, setting: Setting) -> None:
        before = into.setdefault(key, setting)
        if before.form != setting.form:
            message = f"{key} is written twice, as {show(before.value)} and as {show(setting.value)}"
            self._problems.add("written-twice", message, setting.path, "Remove one of the two")

    def _checked(self, key: str, value: Any, path: Path) -> Any:
        if value is None:
            return None
        if reserved.is_reserved(key):
            return reserved.check(key, value, path, self._problems, self._environments)
        expected = expectation(self._known[key].type, value)
        if expected is not None:
            message = f"wrong type: {key} expects {expected}, found {found(value)}"
            self._problems.add("wrong-type", message, path, _type_hint(expected, value))
        return value

    def _advice(self, key: str, words: tuple[str, ...]) -> str | None:
        if key in _MISPLACED:
            return f"{key} {_MISPLACED[key]}"
        parent = key.rpartition(".")[0]
        if parent in self._known and not self._known[parent].nested:
            return f"No key reaches into {parent}: write its value as a whole"
        near = self._nearest(key, words)
        return near and f"The nearest known key is {near}"

    def _find_nearest(self, key: str, words: tuple[str, ...]) -> str | None:
        return nearest(key, (*words, *self._known))

    def _find_leaves(self, key: str) -> list[str]:
        return [leaf for leaf, info in self._known.items() if leaf.startswith(f"{key}.") and not info.nested]


def _type_hint(expected: str, value: Any) -> str:
    if (
        isinstance(value, str)
        and value.lower() in ("on", "off", "yes", "no", "true", "false")
        and "true or false" in expected
    ):
        return "Write true or false, without quotes"
    if isinstance(value, str) and ("integer" in expected or "number" in expected):
        return "Write the number without quotes"
    if not isinstance(value, str) and "string" in expected:
        return "Put the value in quotes"
    return "Correct the value, or write null for the engine's default"
