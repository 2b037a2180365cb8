"""The sections of a matrix file, each read and checked, not yet combined."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from service.domain import environments, naming
from service.domain.document import Document
from service.domain.environments import Definition
from service.domain.errors import Problems
from service.domain.nearest import nearest
from service.domain.place import Path
from service.domain.repeat import MOST, Repeat
from service.domain.requested import ENTRY_WORDS, Reader
from service.domain.setting import Entry, Setting
from service.domain.timeouts import Timeouts
from service.domain.verdict import Verdict
from service.domain.wording import found, listing, show
from workers.protocol import Catalogue, Check

_TOP = (
    "name",
    "engine",
    "matrix",
    "include",
    "exclude",
    "checks",
    "timeouts",
    "repeat",
    "traces",
    environments.SECTION,
)
_LONGEST_NAME = 100
_MOST_ENTRIES = 1000
_DEEPEST = 10
_TIMEOUTS = ("cold", "warm", "probe", "eval", "phase", "silence")
_REPEATED = ("cold", "warm")

DEFAULT_CHECKS = tuple(check for check in Check if check is not Check.EVAL)
"""What a cell checks where nothing is written."""

_Word = TypeVar("_Word", bound=StrEnum)


@dataclass(frozen=True)
class Sections:
    """What a matrix file says.

    ``axes``: for each axis its values. The words of include entries (``name``, …) stand among their settings.
    """

    name: str
    engine: Entry
    axes: Sequence[Sequence[Entry]]
    include: Sequence[Entry]
    exclude: Sequence[Entry]
    checks: tuple[Check, ...]
    timeouts: Timeouts
    repeat: Repeat
    traces: bool
    environments: Mapping[str, Definition]


def read(
    document: Document,
    catalogue: Catalogue,
    problems: Problems,
    max_cells: int,
    defaults: Mapping[str, Definition] | None = None,
) -> Sections:
    """The sections of a document. What is wrong with them goes to ``problems``; then the result is not to be used.

    ``defaults``: engine environments that a matrix need not define.
    """
    known = environments.known(document.tree.get(environments.SECTION), defaults or {}, problems)
    reader = Reader(catalogue, problems, known)
    return _SectionReader(document.tree, reader, problems, max_cells, known).sections()


class _SectionReader:
    def __init__(
        self,
        tree: dict[str, Any],
        reader: Reader,
        problems: Problems,
        max_cells: int,
        known: Mapping[str, Definition],
    ) -> None:
        self._environments = known
        self._tree = tree
        self._reader = reader
        self._problems = problems
        self._max_cells = max_cells

    def sections(self) -> Sections:
        self._check_keys(self._tree, _TOP, ())
        axes = self._axes()
        sections = Sections(
            name=self._name(),
            engine=self._reader.mapping(self._mapping(("engine",)), ("engine",)),
            axes=list(axes.values()),
            include=self._include(),
            exclude=self._exclude(axes),
            checks=self._checks(self._tree.get("checks"), ("checks",)),
            timeouts=self._timeouts(),
            repeat=self._repeat(),
            traces=self._traces(),
            environments=self._environments,
        )
        self._reader.check_amount()
        return sections

    def _check_keys(self, mapping: dict[str, Any], known: Sequence[str], path: Path) -> None:
        for key in mapping:
            if key not in known:
                hint = f"{self._nearest(key, known)}; all are {listing(known)}"
                self._problems.add("unknown-key", f"unknown key {show(key)}", (*path, key), hint)

    def _nearest(self, word: str, known: Sequence[str]) -> str:
        return "" if self._problems.full else f"The nearest known one is {nearest(word, known)}"

    def _wrong_type(self, expected: str, value: Any, path: Path, hint: str) -> None:
        self._problems.add("wrong-type", f"wrong type: {expected}, found {found(value)}", path, hint)

    def _mapping(self, path: Path) -> dict[str, Any]:
        value = self._tree.get(str(path[-1]))
        if value is not None and not isinstance(value, dict):
            self._wrong_type(f"{path[-1]} is a mapping", value, path, "Write one key: value per line, indented")
        return value if isinstance(value, dict) else {}

    def _entries(self, section: str) -> list[tuple[Path, dict[str, Any]]]:
        entries = self._tree.get(section)
        hint = "Write one entry per line, as in - key: value"
        if entries is None:
            return []
        if not isinstance(entries, list):
            self._wrong_type(f"{section} is a list of mappings", entries, (section,), hint)
            return []
        if len(entries) > _MOST_ENTRIES:
            message = f"{len(entries):,} entries; at most {_MOST_ENTRIES:,} are allowed"
            self._problems.add("too-large", message, (section,), "Use axes, or several matrices")
            return []
        for index, entry in enumerate(entries):
            if not isinstance(entry, dict):
                self._wrong_type(f"an entry of {section} is a mapping", entry, (section, index), hint)
        return [((section, index), entry) for index, entry in enumerate(entries) if isinstance(entry, dict)]

    def _name(self) -> str:
        name = self._tree.get("name")
        if name is None:
            self._problems.add("missing", "the matrix has no name", ("name",), "Write name: and a few words at the top")
            return ""
        return self._label(name, _LONGEST_NAME, ("name",))

    def _label(self, name: Any, longest: int, path: Path) -> str:
        hint = f"Write 1 to {longest} printable characters"
        if not isinstance(name, str):
            self._wrong_type("a name is a string", name, path, "Put it in quotes")
            return ""
        if not name.strip() or len(name) > longest or not name.isprintable():
            self._problems.add("name", f"{show(name)} cannot be a name", path, hint)
        return name

    def _axes(self) -> dict[str, list[Entry]]:
        written = self._mapping(("matrix",))
        lists = {key: values for key, values in written.items() if self._is_axis(key, values)}
        combinations = math.prod(map(len, lists.values()))
        if combinations > self._max_cells:
            message = f"the axes make {_count(combinations)} combinations; at most {self._max_cells:,} are allowed"
            hint = "Remove axes or values; combinations are counted before exclude"
            self._problems.add("too-many-cells", message, ("matrix",), hint)
        axes = {key: self._axis(key, values) for key, values in lists.items() if len(values) <= self._max_cells}
        self._check_overlap(axes)
        return axes

    def _is_axis(self, key: str, values: Any) -> bool:
        path = ("matrix", key)
        if not isinstance(values, list):
            self._wrong_type("an axis is a list of values", values, path, "Write the values in [ ], even if it is one")
        elif not values:
            self._problems.add("empty", "the axis has no values", path, "Write at least one value, or remove the axis")
        return self._reader.knows(key, path) and isinstance(values, list) and bool(values)

    def _axis(self, key: str, values: list[Any]) -> list[Entry]:
        return [self._reader.axis_value(key, value, ("matrix", key, index)) for index, value in enumerate(values)]

    def _check_overlap(self, axes: dict[str, list[Entry]]) -> None:
        owners: dict[str, str] = {}
        for axis, values in axes.items():
            for key in dict.fromkeys(key for entry in values for key in entry):
                if owners.setdefault(key, axis) != axis:
                    message = f"the axes {owners[key]} and {axis} both set {key}"
                    self._problems.add("written-twice", message, ("matrix", axis), "Let one axis set it")

    def _include(self) -> list[Entry]:
        return [
            {**self._reader.mapping(entry, path, ENTRY_WORDS), **self._words(entry, path)}
            for path, entry in self._entries("include")
        ]

    def _words(self, entry: dict[str, Any], path: Path) -> Entry:
        readers = {"name": self._cell_name, "expect": self._expect, "checks": self._checks}
        return {
            word: Setting(reader(entry[word], (*path, word)), (*path, word), word)
            for word, reader in readers.items()
            if entry.get(word) is not None
        }

    def _cell_name(self, name: Any, path: Path) -> str:
        return self._label(name, naming.LONGEST, path)

    def _exclude(self, axes: dict[str, list[Entry]]) -> list[Entry]:
        keys = {*self._mapping(("matrix",)), *(key for values in axes.values() for entry in values for key in entry)}
        reaching = {beginning for key in keys for beginning in _beginnings(key)}
        return [self._exclude_entry(entry, path, keys, reaching) for path, entry in self._entries("exclude")]

    def _exclude_entry(self, written: dict[str, Any], path: Path, keys: set[str], reaching: set[str]) -> Entry:
        own = {key: value for key, value in written.items() if key in reaching}
        entry = self._reader.mapping(own, path)
        for key in [key for key in written if key not in own]:
            self._not_an_axis(key, (*path, key))
        for key, setting in entry.items():
            if key not in keys:
                self._not_an_axis(setting.label, setting.path)
        if not entry and len(own) == len(written):
            hint = "Write the axis values to leave out, or remove the entry"
            self._problems.add("empty", "the entry would exclude every combination", path, hint)
        return entry

    def _not_an_axis(self, key: str, path: Path) -> None:
        axes = self._mapping(("matrix",))
        hint = f"The axes are {listing(map(show, axes))}" if axes else "There are no axes, so nothing can be excluded"
        self._problems.add("not-an-axis", f"exclude uses {show(key)}, which is not an axis", path, hint)

    def _checks(self, value: Any, path: Path) -> tuple[Check, ...]:
        if value is None:
            return DEFAULT_CHECKS
        chosen = {Check.AUDIT, *self._members(Check, value, path, "checks is a list")}
        return tuple(check for check in Check if check in chosen)

    def _expect(self, value: Any, path: Path) -> tuple[Verdict, ...]:
        value = [value] if isinstance(value, str) else value
        verdicts = self._members(Verdict, value, path, "expect is a verdict or a list")
        if value == []:
            self._problems.add("empty", "no verdict is expected", path, "Write at least one, or remove expect")
        return verdicts

    def _members(self, words: type[_Word], value: Any, path: Path, expected: str) -> tuple[_Word, ...]:
        known = [str(word) for word in words]
        if not isinstance(value, list):
            self._wrong_type(expected, value, path, f"Choose from {listing(known)}")
            return ()
        for index, item in enumerate(value):
            if item not in known:
                near = self._nearest(item, known) if isinstance(item, str) else "Write words only"
                place = (*path, index) if len(value) > 1 else path
                message = f"unknown {words.__name__.lower()} {show(item)}"
                self._problems.add("unknown-word", message, place, f"{near}; all are {listing(known)}")
        return tuple(dict.fromkeys(words(item) for item in value if item in known))

    def _timeouts(self) -> Timeouts:
        written = self._mapping(("timeouts",))
        self._check_keys(written, _TIMEOUTS, ("timeouts",))
        seconds = {role: written[role] for role in _TIMEOUTS if written.get(role) is not None}
        for role, value in seconds.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                hint = "Write how many seconds it may take"
                self._wrong_type("a timeout is a positive number", value, ("timeouts", role), hint)
        return Timeouts(**{role: float(value) for role, value in seconds.items() if isinstance(value, int | float)})

    def _repeat(self) -> Repeat:
        written = self._mapping(("repeat",))
        self._check_keys(written, _REPEATED, ("repeat",))
        wanted = {role: written[role] for role in _REPEATED if written.get(role) is not None}
        hint = f"Write how often the start is made, 1 to {MOST}"
        for role, value in wanted.items():
            if isinstance(value, bool) or not isinstance(value, int):
                self._wrong_type("a number of starts is an integer", value, ("repeat", role), hint)
            elif not 1 <= value <= MOST:
                message = f"wrong value: {value:,} starts; 1 to {MOST} are allowed"
                self._problems.add("wrong-value", message, ("repeat", role), hint)
        return Repeat(**{role: value for role, value in wanted.items() if isinstance(value, int)})

    def _traces(self) -> bool:
        value = self._tree.get("traces")
        if value is not None and not isinstance(value, bool):
            self._wrong_type("traces is true or false", value, ("traces",), "Write traces: true, or leave it out")
        return value is True


def _beginnings(key: str) -> list[str]:
    """``a.b.c`` → ``a``, ``a.b``, ``a.b.c``; no setting is as deep as this would go."""
    parts = key.split(".", _DEEPEST)
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _count(number: int) -> str:
    return f"{number:,}" if number < 10**15 else "more than a million billion"
