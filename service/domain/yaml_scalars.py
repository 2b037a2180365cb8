"""YAML 1.2 scalars → Python values that JSON has too.

Which plain text is a number, a boolean or null is ruamel's decision (``1e-5`` is a number, ``off`` is a string).
Timestamps stay strings.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.resolver import Resolver

Value = str | int | float | bool | None

_CORE = "tag:yaml.org,2002:"
_LONGEST_NUMBER = 400
_BASES = {"0b": 2, "0o": 8, "0x": 16}
_TRUTH = {"true": True, "false": False}
_NULLS = ("", "~", "null")

_RESOLVER = Resolver()


class Refused(Exception):
    """A scalar that no setting can hold. Becomes a ``MatrixProblem`` with its place."""

    def __init__(self, code: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


def value(tag: str | None, text: str, implicit: tuple[bool, bool]) -> Value:
    """The value of a scalar.

    Args:
        tag: as written, or ``None``.
        text: without quotes, escapes resolved.
        implicit: ruamel's pair; the first is true for plain (unquoted) text.

    Raises:
        Refused: an unknown tag, text that does not fit its tag, a number that JSON cannot carry, a broken string.
    """
    if tag is None:
        return _plain(text, implicit)
    if tag == "!":
        return string(text)
    construct = _CONSTRUCT.get(tag.removeprefix(_CORE)) if tag.startswith(_CORE) else None
    if construct is None:
        raise unknown_tag(tag)
    try:
        return construct(text)
    except ValueError:
        hint = "Remove the tag, or correct the value"
        raise Refused("tag", f"{text[:60]!a} does not fit the tag !!{tag.removeprefix(_CORE)}", hint) from None


def _plain(text: str, implicit: tuple[bool, bool]) -> Value:
    tag = str(_RESOLVER.resolve(ScalarNode, text, implicit)).removeprefix(_CORE)
    try:
        return _CONSTRUCT.get(tag, string)(text)
    except ValueError:  # ruamel takes "-_" for a number
        return string(text)


def unknown_tag(tag: str) -> Refused:
    """For tags other than those of the core schema, ``!!python/...`` among them."""
    shown = tag[:60].replace(_CORE, "!!")
    return Refused("tag", f"the tag {shown!a} is not allowed", "Remove the tag: plain YAML values are all there is")


def string(text: str) -> str:
    """``text`` with its surrogate pairs joined, as JSON's escapes need it.

    Raises:
        Refused: a lone surrogate or a NUL, which neither files, processes nor databases can carry.
    """
    if "\0" in text:
        raise Refused("string", "a string contains the character U+0000", "Remove it")
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        pass
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise Refused("string", "a string contains half a character", "Write surrogates in pairs") from None


def integer(number: int) -> int:
    """
    Raises:
        Refused: an integer of more than 64 bits.
    """
    if abs(number) >= 1 << 64:
        raise Refused("number", "an integer of more than 64 bits", "Quote it if it is text")
    return number


def real(number: float) -> float:
    """
    Raises:
        Refused: infinity or not a number: JSON has neither.
    """
    if not math.isfinite(number):
        raise Refused("number", "infinity and NaN are not values of a setting", "Write a finite number")
    return number


def _integer(text: str) -> int:
    if len(text) > _LONGEST_NUMBER:
        return integer(1 << 64)
    digits = text.replace("_", "").lower()
    unsigned = digits.lstrip("+-")
    base = _BASES.get(unsigned[:2])
    return integer(int(digits.replace(unsigned[:2], "", 1), base) if base else int(digits))


def _real(text: str) -> float:
    named = text.lower().lstrip("+-") in (".inf", ".nan")
    return real(math.inf if named else float(text.replace("_", "")))


def _truth(text: str) -> bool:
    if text.lower() not in _TRUTH:
        raise ValueError(text)
    return _TRUTH[text.lower()]


def _null(text: str) -> None:
    if text.lower() not in _NULLS:
        raise ValueError(text)


_CONSTRUCT: dict[str, Callable[[str], Value]] = {
    "str": string,
    "int": _integer,
    "float": _real,
    "bool": _truth,
    "null": _null,
}
