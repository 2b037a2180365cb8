"""Does a value fit the annotation of a setting?

Only what is certain is refused: annotations made of int, float, bool, str, None, Literal and lists of those. Any other
annotation accepts everything here; the engine environment looks closer in the audit.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from service.domain.wording import listing, show


@dataclass(frozen=True)
class _Part:
    """One alternative of an annotation: what to call it, and what fits it."""

    text: str
    fits: Callable[[Any], bool]


_Parts = tuple[_Part, ...]


def expectation(annotation: str, value: Any) -> str | None:
    """What ``annotation`` expects, in words, if ``value`` does not fit it; ``None`` if it fits or cannot be judged."""
    parts = _parts(annotation)
    if parts is None or any(part.fits(value) for part in parts):
        return None
    return listing(dict.fromkeys(part.text for part in parts), last="or")


@functools.lru_cache(maxsize=1024)
def _parts(annotation: str) -> _Parts | None:
    try:
        return _alternatives(ast.parse(annotation.strip(), mode="eval").body)
    except (SyntaxError, ValueError):
        return None


def _alternatives(node: ast.expr) -> _Parts | None:
    match node:
        case ast.Name(id=name):
            return _SIMPLE.get(name)
        case ast.Constant(value=None):
            return _NULL
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _union([left, right])
        case ast.Subscript(value=ast.Name(id="Union"), slice=ast.Tuple(elts=members)):
            return _union(members)
        case ast.Subscript(value=ast.Name(id="Optional"), slice=member):
            return _union([member, ast.Constant(value=None)])
        case ast.Subscript(value=ast.Name(id="Literal"), slice=ast.Tuple(elts=members)):
            return _literal(members)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=member):
            return _literal([member])
        case ast.Subscript(value=ast.Name(id="list" | "List"), slice=member):
            return _list(member)
    return None


def _union(members: Iterable[ast.expr]) -> _Parts | None:
    alternatives = [_alternatives(member) for member in members]
    if None in alternatives:
        return None
    return tuple(part for parts in alternatives for part in parts or ())


def _literal(members: Sequence[ast.expr]) -> _Parts | None:
    constants = [member.value for member in members if isinstance(member, ast.Constant)]
    if len(constants) < len(members):
        return None
    return tuple(_constant(constant) for constant in constants)


def _constant(constant: Any) -> _Part:
    # The type counts: True equals 1 in Python, not in a matrix.
    return _Part(show(constant), lambda value: type(value) is type(constant) and value == constant)


def _list(member: ast.expr) -> _Parts | None:
    parts = _alternatives(member)
    if parts is None:
        return None
    text = f"a list (each item {listing((part.text for part in parts), last='or')})"
    return (_Part(text, lambda value: isinstance(value, list) and all(_fits(parts, item) for item in value)),)


def _fits(parts: _Parts, value: Any) -> bool:
    return any(part.fits(value) for part in parts)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_NULL = (_Part("null", lambda value: value is None),)
_SIMPLE: dict[str, _Parts] = {
    "int": (_Part("an integer", _is_integer),),
    "float": (_Part("a number", lambda value: _is_integer(value) or isinstance(value, float)),),
    "bool": (_Part("true or false", lambda value: isinstance(value, bool)),),
    "str": (_Part("a string", lambda value: isinstance(value, str)),),
    "None": _NULL,
}
