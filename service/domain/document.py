"""Matrix text → a plain tree and the place of everything in it.

The text is YAML 1.2, of which JSON is a part. The tree holds what JSON can hold: mappings with string keys, lists,
strings, finite numbers of 64 bits, booleans and null. Files come from strangers: their size is limited before they are
parsed, their values and depth while they are, and aliases count as often as they are used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from service.domain import yaml_nodes, yaml_scalars
from service.domain.errors import Problems
from service.domain.place import Path, Place
from service.domain.wording import found, show

__all__ = ["Document", "Path", "Place", "from_tree", "parse"]

MAX_BYTES = 1_048_576
MAX_NODES = 50_000
MAX_DEPTH = 32


@dataclass(frozen=True)
class Document:
    """A parsed matrix. ``places``: a mapping's entry stands where its key stands; empty when there was no text."""

    tree: Any
    places: Mapping[Path, Place] = field(default_factory=dict)

    def place(self, path: Path) -> Place | None:
        """Where ``path`` stands, or else its nearest ancestor that is known; ``None`` when there was no text."""
        for length in range(len(path), -1, -1):
            if place := self.places.get(path[:length]):
                return place
        return None

    def below(self, path: Path, key: str) -> Path | None:
        """Where below ``path`` the dotted ``key`` is written, however it is divided into mappings."""
        return self._written.get((path, key))

    @cached_property
    def _written(self) -> dict[tuple[Path, str], Path]:
        # A matrix may have thousands of cells, each of which is asked for.
        found: dict[tuple[Path, str], Path] = {}
        for path in self.places:
            for length in range(len(path)):
                found.setdefault((path[:length], ".".join(map(str, path[length:]))), path)
        return found


def parse(text: str, *, max_bytes: int = MAX_BYTES, max_nodes: int = MAX_NODES, max_depth: int = MAX_DEPTH) -> Document:
    """Read a matrix file.

    Args:
        text: YAML 1.2 or JSON.
        max_bytes: size of the text in UTF-8.
        max_nodes: keys and values, with aliases written out.
        max_depth: levels of nesting below the top.

    Raises:
        MatrixError: what is not allowed in any matrix file, whatever its keys mean.
    """
    problems = Problems()
    _check_size(text, max_bytes, problems)
    root = yaml_nodes.compose(_untab(text), problems, max_nodes=max_nodes, max_depth=max_depth)
    if root is None or (isinstance(root, yaml_nodes.Scalar) and root.value is None):
        problems.raise_if_any()
        raise problems.stop("empty", "the file is empty", (), "Write at least a name: and an engine: section")
    if not isinstance(root, yaml_nodes.Mapping):
        problems.raise_if_any()
        value: Any = [] if isinstance(root, yaml_nodes.Sequence) else root.value
        raise _not_a_mapping(value, problems, root.place)
    builder = _Expansion(problems, max_nodes, max_depth)
    tree = builder.build(root, (), 0)
    problems.raise_if_any()
    return Document(tree, {(): root.place, **builder.places})


def from_tree(tree: Any, *, max_nodes: int = MAX_NODES, max_depth: int = MAX_DEPTH) -> Document:
    """Take a tree that is parsed already, such as the body of a request, under the same rules. The tree is copied.

    Raises:
        MatrixError: as ``parse``; its problems have no place.
    """
    problems = Problems()
    if not isinstance(tree, dict):
        raise _not_a_mapping(tree, problems, None)
    copy = _Copy(problems, max_nodes, max_depth).copy(tree, (), 0)
    problems.raise_if_any()
    return Document(copy)


def _not_a_mapping(value: Any, problems: Problems, place: Place | None) -> Exception:
    message = f"a matrix is a mapping, found {found(value)}"
    return problems.stop("wrong-type", message, (), "Start with name: and engine:", place)


def _check_size(text: str, max_bytes: int, problems: Problems) -> None:
    # Characters first: they are at most the bytes, and counting them does not copy the text.
    if len(text) > max_bytes or len(text.encode("utf-8", "surrogatepass")) > max_bytes:
        message = f"the file is larger than {max_bytes:,} bytes"
        raise problems.stop("too-large", message, (), "Use axes instead of writing every cell out")


def _untab(text: str) -> str:
    """JSON may be indented with tabs, ruamel accepts none. In valid JSON a tab is never part of a value."""
    if "\t" not in text or not text.lstrip("\ufeff \t\r\n").startswith("{"):
        return text
    try:
        json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return text
    return text.replace("\t", " ")


class _Budget:
    """Counts what a tree holds, and stops the reading when it is too much."""

    def __init__(self, problems: Problems, max_nodes: int, max_depth: int) -> None:
        self._problems = problems
        self._max_nodes = max_nodes
        self._max_depth = max_depth
        self._nodes = 0

    def spend(self, path: Path, depth: int, nodes: int = 1, place: Place | None = None) -> None:
        self._nodes += nodes
        if self._nodes > self._max_nodes:
            raise yaml_nodes.too_many_nodes(self._problems, self._max_nodes, path, place)
        if depth > self._max_depth:
            raise yaml_nodes.too_deep(self._problems, self._max_depth, path, place)


class _Expansion(_Budget):
    """Nodes → tree, aliases written out."""

    def __init__(self, problems: Problems, max_nodes: int, max_depth: int) -> None:
        super().__init__(problems, max_nodes, max_depth)
        self.places: dict[Path, Place] = {}

    def build(self, node: yaml_nodes.Node, path: Path, depth: int) -> Any:
        self.spend(path, depth, place=node.place)
        self.places.setdefault(path, node.place)
        if isinstance(node, yaml_nodes.Scalar):
            return node.value
        if isinstance(node, yaml_nodes.Sequence):
            return [self.build(item, (*path, index), depth + 1) for index, item in enumerate(node.items)]
        return {key: self._entry(place, value, (*path, key), depth + 1) for key, place, value in node.items}

    def _entry(self, place: Place, value: yaml_nodes.Node, path: Path, depth: int) -> Any:
        self.spend(path, depth, place=place)
        self.places[path] = place
        return self.build(value, path, depth)


class _Copy(_Budget):
    """Tree → tree, with everything checked that a parsed text would have been checked for."""

    def copy(self, value: Any, path: Path, depth: int) -> Any:
        self.spend(path, depth)
        if isinstance(value, dict):
            return dict(self._entry(key, item, path, depth + 1) for key, item in value.items())
        if isinstance(value, list):
            return [self.copy(item, (*path, index), depth + 1) for index, item in enumerate(value)]
        return self._scalar(value, path)

    def _entry(self, key: Any, value: Any, path: Path, depth: int) -> tuple[str, Any]:
        self.spend(path, depth)
        name = self._scalar(key, path)
        if not isinstance(name, str):
            self._problems.add("key", f"a key must be a string, found {found(key)}", path, "Quote it")
            name = show(key)
        return name, self.copy(value, (*path, name), depth)

    def _scalar(self, value: Any, path: Path) -> Any:
        try:
            return _checked(value)
        except yaml_scalars.Refused as refused:
            self._problems.add(refused.code, str(refused), path, refused.hint)
            return None


def _checked(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return yaml_scalars.string(value)
    if isinstance(value, int):
        return yaml_scalars.integer(value)
    if isinstance(value, float):
        return yaml_scalars.real(value)
    raise yaml_scalars.Refused("wrong-type", f"{found(value)} is not a JSON value", "Use JSON values only")
