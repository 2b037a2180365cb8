"""Watch vLLM resolve a configuration: which line wrote which setting, and what it said as it did."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workers.engine import internals

NEAR_LINES = 20
"""A warning this few lines above a write in the same function is taken for its reason."""


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
    place: Place
    message: str


@dataclass
class Trace:
    """``writes``: (object id, attribute) → the last place that changed it. ``warnings``: in order."""

    writes: dict[tuple[int, str], Place] = field(default_factory=dict)
    warnings: list[Warned] = field(default_factory=list)

    def reason(self, place: Place | None, name: str) -> str | None:
        """What the engine said as it wrote at ``place``.

        A value changed in place (a list appended to) has no traced write: then a warning that names the setting.
        """
        if place is not None:
            said = [w.message for w in self.warnings if _explains(w.place, place)]
        else:
            said = [w.message for w in self.warnings if "_" in name and re.search(rf"\b{name}\b", w.message)]
        return said[-1] if said else None


def _explains(warned: Place, written: Place) -> bool:
    same = warned.file == written.file and warned.function == written.function
    return same and 0 <= written.line - warned.line <= NEAR_LINES


class _Collector(logging.Handler):
    def __init__(self, trace: Trace) -> None:
        super().__init__(logging.WARNING)
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        place = Place(_relative(record.pathname), record.funcName or "", record.lineno)
        self._trace.warnings.append(Warned(place, record.getMessage()))


def _relative(path: str) -> str:
    """From the package on: ``vllm/config/vllm.py``."""
    parts = Path(path).parts
    return "/".join(parts[parts.index("site-packages") + 1 :]) if "site-packages" in parts else "/".join(parts[-3:])


@contextlib.contextmanager
def watch(classes: list[type[Any]]) -> Iterator[Trace]:
    """Trace writes to instances of ``classes`` and vLLM's warnings until the block ends."""
    trace = Trace()
    collector = _Collector(trace)
    logger = logging.getLogger("vllm")
    internals.forget_logged_once()
    logger.addHandler(collector)
    originals = [(owner, owner.__dict__.get("__setattr__")) for owner in classes]
    for owner in classes:
        owner.__setattr__ = _tracing(owner.__setattr__, trace)
    try:
        yield trace
    finally:
        for owner, original in originals:
            if original is None:
                del owner.__setattr__
            else:
                owner.__setattr__ = original
        logger.removeHandler(collector)


def _tracing(original: Any, trace: Trace) -> Any:
    def __setattr__(self: Any, name: str, value: Any) -> None:
        before = self.__dict__.get(name, dataclasses.MISSING)
        original(self, name, value)
        if before is not value:
            frame = sys._getframe(1)
            code = frame.f_code
            trace.writes[(id(self), name)] = Place(_relative(code.co_filename), code.co_name, frame.f_lineno)

    return __setattr__
