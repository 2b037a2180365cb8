"""How fast residuals are compared and sketched, beside a plain copy of the same bytes in the same run.

One thread does all of it, the copy as well: a rank of the CPU engine has one core, and what the threads of a shared
machine wait for each other is no property of this code. The tensors are taken in turn from a set larger than any
cache, so that a copy is one of memory.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch

from workers.bench import Measured
from workers.protocol import Role
from workers.residual.compare import Question, compare
from workers.residual.sketch import BYTES_PER_TOKEN, sketch
from workers.residual.taps import TapSet

GOAL = 0.3
QUESTION = Question(
    subject=Role.PROBE, against=Role.REPLICATED, scattered=False, bitwise=False, sites=1, noise_factor=3.0
)


@dataclass(frozen=True)
class Sizes:
    """``tokens`` rows of each of ``hidden`` × ``dtypes``.

    ``memory``: bytes of tensors that are taken in turn. ``seconds``: spent on one operation, unless ``repeats`` take
    longer.
    """

    hidden: tuple[int, ...] = (1024, 4096, 8192)
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16)
    tokens: int = 2048
    memory: int = 128 << 20
    seconds: float = 1.0
    repeats: int = 5


@dataclass(frozen=True)
class Recording:
    """One recorded residual, the same again and another that differs in every number; ``room`` to copy it to."""

    residual: torch.Tensor
    same: torch.Tensor
    other: torch.Tensor
    room: torch.Tensor


Operation: TypeAlias = Callable[[Recording], object]


def measure(sizes: Sizes | None = None) -> Measured:
    """Throughput of comparison and sketch in GB/s of one residual's bytes. Takes less than a minute.

    ``equal`` compares recordings of the same bits, ``score`` such as differ everywhere, as :func:`compare` does.
    The figure is the smallest of their and the sketch's throughputs divided by that of the copy.
    """
    sizes = sizes or Sizes()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rows = [_row(hidden, dtype, sizes) for hidden in sizes.hidden for dtype in sizes.dtypes]
    finally:
        torch.set_num_threads(threads)
    figure = min(row[f"{name}_to_copy"] for row in rows for name in OPERATIONS)
    return Measured(figure=figure, unit="of the throughput of a copy", goal=GOAL, threads=1, rows=rows)


def _row(hidden: int, dtype: torch.dtype, sizes: Sizes) -> dict[str, Any]:
    recordings = _recordings(hidden, dtype, sizes)
    size = recordings[0].residual.nbytes
    row: dict[str, Any] = {
        "hidden": hidden,
        "dtype": str(dtype).removeprefix("torch."),
        "tokens": sizes.tokens,
        "bytes_per_token": size // sizes.tokens,
        "sketch_bytes_per_token": BYTES_PER_TOKEN,
    }
    copies: list[float] = []
    for name, operation in OPERATIONS.items():
        copied, done = _timed(operation, recordings, sizes)
        copies += copied
        row[f"{name}_gb_s"] = round(size / statistics.median(done) / 1e9, 3)
        row[f"{name}_to_copy"] = round(statistics.median(copied) / statistics.median(done), 3)
    return row | {"copy_gb_s": round(size / statistics.median(copies) / 1e9, 3)}


def _recordings(hidden: int, dtype: torch.dtype, sizes: Sizes) -> list[Recording]:
    residual = torch.randn(sizes.tokens, hidden, generator=torch.Generator().manual_seed(0)).to(dtype)
    count = max(2, math.ceil(sizes.memory / residual.nbytes))
    # Half a per cent is more than half the last digit of any dtype: every number differs.
    other = residual * 1.005
    # The room is written to as well: a first touch of memory costs more than the copy.
    return [Recording(*(tensor.clone() for tensor in (residual, residual, other, residual))) for _ in range(count)]


def _timed(operation: Operation, recordings: list[Recording], sizes: Sizes) -> tuple[list[float], list[float]]:
    """Seconds of each copy and of each ``operation``, taken in turn: when the machine slows down, it does for both."""
    _copy(recordings[0])
    operation(recordings[0])
    copied, done = [], []
    for recording in _in_turn(recordings, sizes):
        copied.append(_seconds(_copy, recording))
        done.append(_seconds(operation, recording))
    return copied, done


def _in_turn(recordings: list[Recording], sizes: Sizes) -> Iterator[Recording]:
    end = time.perf_counter() + sizes.seconds
    for number, recording in enumerate(itertools.cycle(recordings)):
        if number >= sizes.repeats and time.perf_counter() >= end:
            return
        yield recording


def _seconds(operation: Operation, recording: Recording) -> float:
    start = time.perf_counter()
    operation(recording)
    return time.perf_counter() - start


def _copy(recording: Recording) -> None:
    recording.room.copy_(recording.residual)


def _compare(found: torch.Tensor, expected: torch.Tensor) -> None:
    compare(_taps("found", found), _taps("expected", expected), QUESTION)


def _taps(folder: str, residual: torch.Tensor) -> TapSet:
    return TapSet(Path(folder), [len(residual)], [{"0/0": residual}])


OPERATIONS: dict[str, Operation] = {
    "equal": lambda recording: _compare(recording.same, recording.residual),
    "score": lambda recording: _compare(recording.other, recording.residual),
    "sketch": lambda recording: sketch(recording.residual),
}
