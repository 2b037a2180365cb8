"""Watch vLLM resolve a configuration: which line wrote which setting, and what it said as it did."""

from __future__ import annotations

import contextlib
import dataclasses
import linecache
import logging
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from workers.engine import internals

NEAR_LINES = 20
"""A warning is taken for the reason of writes in its own block of source, at most this many lines away."""


@dataclass(frozen=True)
class Place:
    """A line of the engine's source, its file relative to the package."""

    file: str
    function: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


@dataclass(frozen=True)
class Warned:
    """``block``: first and last line of the source around the warning that is indented at least as far."""

    place: Place
    message: str
    block: tuple[int, int]

    def explains(self, written: Place) -> bool:
        same = self.place.file == written.file and self.place.function == written.function
        return same and self.block[0] <= written.line <= self.block[1]

    def distance(self, written: Place) -> int:
        return abs(self.place.line - written.line)


@dataclass
class Trace:
    """``writes``: (object id, attribute) → the last place that changed it. ``warnings``: in order.

    ``owners`` keeps the objects alive, so that no other one takes over an id.
    """

    writes: dict[tuple[int, str], Place] = field(default_factory=dict)
    warnings: list[Warned] = field(default_factory=list)
    owners: dict[int, Any] = field(default_factory=dict)

    def reason(self, place: Place | None, name: str) -> str | None:
        """What the engine said as it wrote at ``place``.

        A value changed in place (a list appended to) has no traced write: then a warning that names the setting.
        """
        if place is not None:
            said = [warned for warned in self.warnings if warned.explains(place)]
            said.sort(key=lambda warned: warned.distance(place), reverse=True)
        else:
            said = [w for w in self.warnings if "_" in name and re.search(rf"\b{name}\b", w.message)]
        return said[-1].message if said else None


def _relative(path: str) -> str:
    """From the package on: ``vllm/config/vllm.py``."""
    parts = Path(path).parts
    return "/".join(parts[parts.index("site-packages") + 1 :]) if "site-packages" in parts else "/".join(parts[-3:])


def _place(frame: FrameType) -> Place:
    code = frame.f_code
    return Place(_relative(code.co_filename), code.co_name, frame.f_lineno)


def _block(frame: FrameType) -> tuple[int, int]:
    lines = linecache.getlines(frame.f_code.co_filename)
    start = frame.f_lineno
    if start > len(lines):
        return start, start
    deep = _indent(lines[start - 1])

    def last(step: int) -> int:
        number = start
        while abs(number - start) < NEAR_LINES and 0 < number + step <= len(lines):
            text = lines[number + step - 1]
            if text.strip() and _indent(text) < deep:
                break
            number += step
        return number

    return last(-1), last(1)


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


@contextlib.contextmanager
def watch(classes: list[type[Any]]) -> Iterator[Trace]:
    """Trace writes to instances of ``classes`` and vLLM's warnings until the block ends."""
    trace = Trace()
    internals.forget_logged_once()
    originals = [(owner, owner.__dict__.get("__setattr__")) for owner in classes]
    for owner in classes:
        owner.__setattr__ = _tracing(owner.__setattr__, trace)
    try:
        with _listening(trace):
            yield trace
    finally:
        for owner, original in originals:
            if original is None:
                del owner.__setattr__
            else:
                owner.__setattr__ = original


@contextlib.contextmanager
def _listening(trace: Trace) -> Iterator[None]:
    """Note what vLLM warns of.

    As it resolves a configuration vLLM configures its logging, which removes any handler and may raise the level: so
    the method is watched and not the logger.
    """
    original = logging.Logger.warning

    def warning(self: logging.Logger, msg: object, *args: object, **kwargs: Any) -> None:
        depth = kwargs.pop("stacklevel", 1)
        if self.name.partition(".")[0] == "vllm":
            frame = sys._getframe(depth)
            said = logging.LogRecord(self.name, logging.WARNING, "", 0, msg, args, None)
            trace.warnings.append(Warned(_place(frame), said.getMessage(), _block(frame)))
        original(self, msg, *args, stacklevel=depth + 1, **kwargs)

    logging.Logger.warning = warning  # type: ignore[method-assign]
    try:
        yield
    finally:
        logging.Logger.warning = original  # type: ignore[method-assign]


def _tracing(original: Any, trace: Trace) -> Any:
    def __setattr__(self: Any, name: str, value: Any) -> None:
        before = self.__dict__.get(name, dataclasses.MISSING)
        original(self, name, value)
        if before is not value:
            trace.writes[(id(self), name)] = _place(sys._getframe(1))
            trace.owners[id(self)] = self

    return __setattr__
