"""What Inductor's log line costs on graphs of rising depth, with the patch ``fallback_fast_path`` and without it.

Each depth is compiled both ways in turn, all in one process. Newer PyTorch makes the text of that line only where
somebody reads it. There the logger is set to a level at which it is read, and what it says is dropped.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from workers.bench import Measured, chain
from workers.engine.internals import CALL_FUNCTION, GRAPH, TargetMissing, resolve
from workers.patches import fallback_fast_path
from workers.probes.fallback import PROBE
from workers.protocol import PatchMode, PatchState

GROWS = 1.8
"""Unpatched at least so many times per layer."""

FLAT = 1.2
"""Patched at most so many times from the lowest depth to the highest."""

STEEP = 3.0
"""No layer is expected to take more than so many times what the one before it took."""

WARM_UP = 2
"""Layers compiled beforehand: the first compilation of a process takes longer."""


@dataclass(frozen=True)
class Depths:
    """Patched, all depths up to ``patched`` are compiled. Unpatched those up to ``unpatched`` that promise to take less
    than ``limit_s``, and in any case the lowest two. ``repeats``: of each, unless formatting has taken ``long_s``.
    """

    lowest: int = 4
    unpatched: int = 12
    patched: int = 14
    repeats: int = 5
    long_s: float = 1.0
    limit_s: float = 240.0


QUICK = Depths(unpatched=9, repeats=3)
DEEP = Depths(unpatched=14)
"""The last layer alone takes a minute."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Compiled:
    """Seconds of one compilation: of all of it, of lowering the operation at the end, of formatting; and counts."""

    seconds: float
    last_op_s: float
    formatting_s: float
    characters: int
    calls: int
    state: PatchState


def measure(quick: bool, deep: bool = False, depths: Depths | None = None) -> Measured:
    """A row for each depth, patched and not, then the growth of both. No engine is started, no model needed.

    The figure is how the seconds of formatting grow per layer, unpatched. ``quick``: some seconds; ``deep``: unpatched
    as many layers as patched, which takes minutes.

    Raises:
        TargetMissing: when this PyTorch has nothing of what is measured.
    """
    rows = list(_rows(depths or (QUICK if quick else DEEP if deep else Depths())))
    unpatched, patched = (_growth([row for row in rows if row.get("patched") is way]) for way in (False, True))
    return Measured(
        figure=unpatched["formatting_per_layer"],
        unit="times the seconds of formatting with every layer, unpatched",
        goal=GROWS,
        threads=torch.get_num_threads(),
        rows=[*rows, unpatched, patched],
    )


def _rows(depths: Depths) -> Iterator[Row]:
    with _probed(), _read():
        yield {"what": "log line", "formatted_unread": PROBE.told(0).eager, "here": f"read at INFO by {GRAPH}'s logger"}
        for patched in (True, False):
            compiled(WARM_UP, patched)
        promised = 0.0
        for depth in range(depths.lowest, depths.patched + 1):
            yield _row(depth, True, depths)
            bearable = promised < depths.limit_s or depth < depths.lowest + 2
            if depth <= depths.unpatched and bearable:
                row = _row(depth, False, depths)
                promised = STEEP * row["seconds"]
                yield row


def _row(depth: int, patched: bool, depths: Depths) -> Row:
    """The fastest of some compilations: what takes longer in another is no property of the graph."""
    found = [compiled(depth, patched)]
    while len(found) < depths.repeats and found[-1].formatting_s < depths.long_s:
        found.append(compiled(depth, patched))
    return {
        "depth": depth,
        "patched": patched,
        "seconds": round(min(one.seconds for one in found), 4),
        "formatting_s": round(min(one.formatting_s for one in found), 6),
        "last_op_s": round(min(one.last_op_s for one in found), 6),
        "characters": found[0].characters,
        "slow_path_calls": found[0].calls,
        "state": str(found[0].state),
        "times": len(found),
    }


def compiled(depth: int, patched: bool) -> Compiled:
    """Compile a chain of ``depth`` layers. The probe has to be installed.

    Raises:
        TargetMissing: when the probe cannot count here, or the patch cannot be put on or taken off.
    """
    state = fallback_fast_path.establish(PatchMode.ON if patched else PatchMode.OFF)
    subject = chain.make(depth)
    PROBE.forget()
    with _clocked(subject.last) as lowering:
        begin = time.perf_counter()
        subject.compile()
        seconds = time.perf_counter() - begin
    told = PROBE.told(0)
    if told.calls is None or told.slow_path_s is None or told.characters is None:
        raise TargetMissing(CALL_FUNCTION, f"measure its log line: {told.reason}")
    return Compiled(seconds, sum(lowering), told.slow_path_s, told.characters, told.calls, state)


def _growth(rows: list[Row]) -> Row:
    """From the lowest depth to the highest: times per layer, and times in all. What was never done does not grow."""
    first, last = rows[0], rows[-1]
    layers = last["depth"] - first["depth"]
    patched = first["patched"]
    in_all = last["last_op_s"] / first["last_op_s"]
    per_layer = {name: _times(first[name], last[name]) ** (1 / layers) for name in ("formatting_s", "characters")}
    reached = in_all <= FLAT if patched else per_layer["formatting_s"] > GROWS
    return {
        "what": "growth",
        "patched": patched,
        "from": first["depth"],
        "to": last["depth"],
        "formatting_per_layer": round(per_layer["formatting_s"], 3),
        "characters_per_layer": round(per_layer["characters"], 3),
        "last_op_in_all": round(in_all, 3),
        "seconds_in_all": round(last["seconds"] / first["seconds"], 3),
        "goal": f"last op in all at most {FLAT}" if patched else f"formatting per layer more than {GROWS}",
        "reached": reached,
    }


def _times(first: float, last: float) -> float:
    return last / first if first else 1.0


@contextlib.contextmanager
def _probed() -> Iterator[None]:
    """The probe is there, and afterwards all is as it was."""
    PROBE.install()
    try:
        yield
    finally:
        PROBE.remove()
        fallback_fast_path.establish(PatchMode.NATIVE)


class _Reader(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Have the text made, and drop it."""
        record.getMessage()


@contextlib.contextmanager
def _read() -> Iterator[None]:
    """The log line has one reader."""
    logger = logging.getLogger(GRAPH)
    before = logger.level, logger.propagate, logger.handlers
    logger.handlers = [_Reader()]
    logger.propagate = False
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.handlers = before[2]
        logger.propagate = before[1]
        logger.setLevel(before[0])


@contextlib.contextmanager
def _clocked(op: Any) -> Iterator[list[float]]:
    """Seconds of each call that lowers ``op``: the thread's on its core, so that others who want it do not count."""
    owner_path, _, name = CALL_FUNCTION.rpartition(".")
    purpose = "time the lowering of one operation"
    owner, lower = resolve(owner_path, purpose), resolve(CALL_FUNCTION, purpose)
    seconds: list[float] = []

    def clocked(self: Any, target: Any, args: Any, kwargs: Any) -> Any:
        begin = time.thread_time()
        try:
            return lower(self, target, args, kwargs)
        finally:
            if target is op:
                seconds.append(time.thread_time() - begin)

    setattr(owner, name, clocked)
    try:
        yield seconds
    finally:
        setattr(owner, name, lower)
