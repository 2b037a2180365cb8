"""YAML 1.2 text → nodes with places. Aliases still point at their anchors, nothing is expanded yet.

Reads ruamel's events one by one instead of letting it compose the whole file, because the limits have to hold *while* a
hostile file is read: composing a megabyte of brackets takes minutes, stopping at the 33rd takes none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)
from ruamel.yaml.reader import ReaderError

from service.domain import yaml_scalars
from service.domain.errors import MatrixError, Problems
from service.domain.place import Path, Place
from service.domain.wording import show

_LONG_TAG = re.compile(r"(?:^|[\s,\[{])![^\s]{1000}")
"""ruamel needs time that grows with the square of a tag's length: 15 s for a megabyte."""

_HINTS = {
    "\\t": "Indent with spaces: YAML has no tabs there",
    "mapping values are not allowed": 'Put a value that contains ": " in quotes',
    "undefined alias": "Define it with & before it is used with *",
    "block scalar": "Indent the lines of the block equally",
    "special characters": "Save the file as UTF-8 text",
    "version": "Remove the %YAML line",
}
_HINT = "Check the indentation, brackets and quotes up to there"


@dataclass(frozen=True)
class Scalar:
    place: Place
    value: yaml_scalars.Value


@dataclass(frozen=True)
class Sequence:
    place: Place
    items: list[Node]


@dataclass(frozen=True)
class Mapping:
    """``items``: key, place of the key, value; keys are unique."""

    place: Place
    items: list[tuple[str, Place, Node]]


Node = Scalar | Sequence | Mapping


def compose(text: str, problems: Problems, *, max_nodes: int, max_depth: int) -> Node | None:
    """The one document in ``text``; ``None`` if it is empty.

    What is wrong with single keys and values goes to ``problems``.

    Raises:
        MatrixError: at the first error of syntax, or when a limit is passed.
    """
    return _Composer(text, problems, max_nodes, max_depth).document()


class _Composer:
    def __init__(self, text: str, problems: Problems, max_nodes: int, max_depth: int) -> None:
        self._text = text
        self._problems = problems
        self._max_nodes = max_nodes
        self._max_depth = max_depth
        self._nodes = 0
        self._anchors: dict[str, Node | None] = {}
        self._events = self._read()

    def document(self) -> Node | None:
        node: Node | None = None
        for event in self._events:
            if isinstance(event, DocumentStartEvent):
                self._check_start(event, first=node is None)
                node = self._node(next(self._events), (), 0)
            elif isinstance(event, StreamEndEvent):
                break
        return node

    def _read(self) -> Iterator[Event]:
        if long := _LONG_TAG.search(self._text):
            raise self._problems.stop("syntax", "a tag of more than 1000 characters", (), place=self._at(long.end()))
        try:
            yield from YAML(typ="safe", pure=True).parse(self._text)
        except ReaderError as error:
            said = f"not text: character U+{error.character:04X} is not allowed"
            raise self._syntax(said, self._at(error.position), str(error)) from None
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            said = " ".join(part for part in (error.problem, error.context) if part)
            raise self._syntax(f"not valid YAML: {said}", mark and _place(mark), said) from None
        except Exception as error:  # ruamel asserts, and fails otherwise, on some malformed text
            said = str(error) or type(error).__name__
            raise self._syntax(f"not valid YAML: {said}", None, said) from None

    def _syntax(self, message: str, place: Place | None, said: str) -> MatrixError:
        hint = next((hint for sign, hint in _HINTS.items() if sign in said), _HINT)
        return self._problems.stop("syntax", " ".join(message.split()), (), hint, place)

    def _at(self, index: int) -> Place:
        before = self._text[:index]
        return Place(before.count("\n") + 1, index - before.rfind("\n"))

    def _check_start(self, event: DocumentStartEvent, *, first: bool) -> None:
        place = _place(event.start_mark)
        if not first:
            hint = "Submit each in a file of its own; remove the line ---"
            raise self._problems.stop("several-documents", "a second document starts here", (), hint, place)
        if event.version not in (None, (1, 2)):
            hint = "Remove the %YAML line"
            raise self._problems.stop("syntax", "matrix files are YAML 1.2", (), hint, place)

    def _node(self, event: Event, path: Path, depth: int) -> Node:
        assert isinstance(event, NodeEvent)
        self._count(event, path, depth)
        if isinstance(event, AliasEvent):
            return self._alias(event, path)
        if event.anchor:
            self._anchors[event.anchor] = None
        node = self._content(event, path, depth)
        if event.anchor:
            self._anchors[event.anchor] = node
        return node

    def _content(self, event: NodeEvent, path: Path, depth: int) -> Node:
        place = _place(event.start_mark)
        if isinstance(event, ScalarEvent):
            return Scalar(place, self._scalar(event, path, place))
        if isinstance(event, SequenceStartEvent):
            self._check_tag(event, "tag:yaml.org,2002:seq", path, place)
            return Sequence(place, list(self._items(path, depth + 1)))
        assert isinstance(event, MappingStartEvent)
        self._check_tag(event, "tag:yaml.org,2002:map", path, place)
        return Mapping(place, list(self._pairs(path, depth + 1)))

    def _count(self, event: NodeEvent, path: Path, depth: int) -> None:
        self._nodes += 1
        if self._nodes > self._max_nodes:
            raise too_many_nodes(self._problems, self._max_nodes, path, _place(event.start_mark))
        if depth > self._max_depth:
            raise too_deep(self._problems, self._max_depth, path, _place(event.start_mark))

    def _alias(self, event: AliasEvent, path: Path) -> Node:
        place = _place(event.start_mark)
        if event.anchor not in self._anchors:
            said = f"undefined alias *{event.anchor}"
            raise self._syntax(f"not valid YAML: {said}", place, said)
        node = self._anchors[event.anchor]
        if node is None:
            message = f"*{event.anchor} stands inside its own anchor &{event.anchor}"
            raise self._problems.stop("recursive-alias", message, path, "Write the values out", place)
        return node

    def _items(self, path: Path, depth: int) -> Iterator[Node]:
        for index, event in enumerate(self._events):
            if isinstance(event, SequenceEndEvent):
                return
            yield self._node(event, (*path, index), depth)

    def _pairs(self, path: Path, depth: int) -> Iterator[tuple[str, Place, Node]]:
        seen: dict[str, Place] = {}
        for event in self._events:
            if isinstance(event, MappingEndEvent):
                return
            place = _place(event.start_mark)
            key = self._key(event, path, depth, place)
            value = self._node(next(self._events), path if key is None else (*path, key), depth)
            if key is None:
                continue
            if key in seen:
                message = f"{show(key)} is written twice, first at {seen[key]}"
                self._problems.add("duplicate-key", message, (*path, key), "Remove one of the two", place)
                continue
            seen[key] = place
            yield key, place, value

    def _key(self, event: Event, path: Path, depth: int, place: Place) -> str | None:
        merge = isinstance(event, ScalarEvent) and event.value == "<<" and event.implicit[0]
        node = self._node(event, path, depth)
        if merge:
            hint = "YAML 1.2 has no merge keys: write the keys out"
            self._problems.add("key", "<< is not a setting", path, hint, place)
        elif not isinstance(node, Scalar):
            hint = "Put a value that starts with { or [ in quotes"
            self._problems.add("key", "a key must be a string, found a list or a mapping", path, hint, place)
        elif isinstance(node.value, str):
            return node.value
        else:
            text = event.value if isinstance(event, ScalarEvent) and event.value else show(node.value)
            message = f"a key must be a string, found {text}"
            self._problems.add("key", message, path, f"Quote it: {show(text)}:", place)
        return None

    def _scalar(self, event: ScalarEvent, path: Path, place: Place) -> yaml_scalars.Value:
        try:
            return yaml_scalars.value(event.tag, event.value, event.implicit)
        except yaml_scalars.Refused as refused:
            self._problems.add(refused.code, str(refused), path, refused.hint, place)
            return None

    def _check_tag(self, event: Any, expected: str, path: Path, place: Place) -> None:
        if event.tag not in (None, "!", expected):
            refused = yaml_scalars.unknown_tag(event.tag)
            self._problems.add(refused.code, str(refused), path, refused.hint, place)


def too_many_nodes(problems: Problems, most: int, path: Path, place: Place | None = None) -> MatrixError:
    """The error for a file that holds, or whose aliases unfold to, more than ``most`` values."""
    message = f"more than {most:,} keys and values, aliases written out"
    return problems.stop("too-large", message, path[:4], "Use axes instead of long lists, and fewer aliases", place)


def too_deep(problems: Problems, most: int, path: Path, place: Place | None = None) -> MatrixError:
    """The error for a file that nests deeper than ``most`` levels."""
    return problems.stop("too-deep", f"nested deeper than {most} levels", path[:4], "Nest less", place)


def _place(mark: Any) -> Place:
    return Place(mark.line + 1, mark.column + 1)
