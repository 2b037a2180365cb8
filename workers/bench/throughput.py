"""How fast recordings are compared and sketched, beside a plain copy of the same bytes in the same run.

One thread does all of it, the copy as well: a rank of the CPU engine has one core, and what the threads of a shared
machine wait for each other is no property of this code. A recording is larger than any cache, so that a copy is one of
memory. Copy and operation take turns: when the machine slows down it does so for both. What is taken is the thread's
time on its core, which on a machine of its own is the time that passes; where others wait for the core too, it leaves
out when they had it.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from workers.bench.recording import Recordings, Shape, make
from workers.protocol import Role
from workers.residual.compare import Question, compare
from workers.residual.sketch import sketch
from workers.residual.taps import TapSet, site_count


@dataclass(frozen=True)
class Sizes:
    """Recordings of each of ``hidden`` × ``dtypes``.

    ``steps``: their tokens, such as a long prompt, shorter ones and decoding. ``memory``: least bytes of one, which
    settles the number of layers. ``seconds``: spent on one operation, unless ``repeats`` take longer.
    """

    hidden: tuple[int, ...] = (1024, 4096, 8192)
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16)
    steps: tuple[int, ...] = (2048, 512, 64, 8, 8)
    memory: int = 64 << 20
    seconds: float = 1.0
    repeats: int = 7

    def shapes(self) -> Iterator[Shape]:
        for hidden in self.hidden:
            for dtype in self.dtypes:
                sites = math.ceil(self.memory / (sum(self.steps) * hidden * dtype.itemsize))
                layers = next(layers for layers in range(1, sites + 1) if site_count(layers) >= sites)
                yield Shape(hidden, dtype, self.steps, layers)


Operation: TypeAlias = Callable[[Recordings], object]


def throughput(sizes: Sizes) -> Iterator[list[dict[str, Any]]]:
    """The rows of one shape after the other: the copy, then each of ``OPERATIONS``; then the memory per token."""
    for shape in sizes.shapes():
        with _one_thread():
            recordings = make(shape)
            yield _rows(recordings, sizes)


def memory(recordings: Recordings) -> dict[str, Any]:
    """Bytes that a token takes on the rank that has it, kept whole and as a sketch."""
    sketches = [sketch(shard) for shard in recordings.shards]
    tokens = sum(recordings.shape.steps)
    return {
        "what": "memory per token",
        **_of(recordings.shape),
        "sites": recordings.shape.sites,
        "full_bytes": recordings.size // tokens,
        "sketch_bytes": sum(kept.hashes.nbytes + kept.projection.nbytes for kept in sketches) // tokens,
    }


def _rows(recordings: Recordings, sizes: Sizes) -> list[dict[str, Any]]:
    copies: list[float] = []
    rows = []
    for name, operation in OPERATIONS.items():
        copied, done = _timed(operation, recordings, sizes)
        copies += copied
        rows.append(_row(name, recordings, done, copied))
    typical = [statistics.median(copies)] * len(copies)
    return [_row(COPY, recordings, copies, typical), *rows, memory(recordings)]


def _row(name: str, recordings: Recordings, seconds: list[float], copied: list[float]) -> dict[str, Any]:
    """``copied``: the copy beside each of ``seconds``. The spread of the ratios says how quiet the machine was."""
    ratios = [one / other for one, other in zip(copied, seconds, strict=True)]
    return {
        "what": name,
        **_of(recordings.shape),
        "gb_s": round(recordings.size / statistics.median(seconds) / 1e9, 3),
        "to_copy": round(statistics.median(ratios), 3),
        "lowest": round(min(ratios), 3),
        "highest": round(max(ratios), 3),
        "times": len(ratios),
    }


def _of(shape: Shape) -> dict[str, Any]:
    return {"hidden": shape.hidden, "dtype": str(shape.dtype).removeprefix("torch.")}


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _timed(operation: Operation, recordings: Recordings, sizes: Sizes) -> tuple[list[float], list[float]]:
    """Seconds of each copy and of each ``operation``. What happens once, such as compiling, is done before."""
    _copy(recordings)
    operation(recordings)
    copied: list[float] = []
    done: list[float] = []
    end = time.perf_counter() + sizes.seconds
    while len(done) < sizes.repeats or time.perf_counter() < end:
        copied.append(_seconds(_copy, recordings))
        done.append(_seconds(operation, recordings))
    return copied, done


def _seconds(operation: Operation, recordings: Recordings) -> float:
    start = time.thread_time()
    operation(recordings)
    return time.thread_time() - start


def _copy(recordings: Recordings) -> None:
    for room, shard in zip(recordings.room, recordings.shards, strict=True):
        room.copy_(shard)


def compared(recordings: Recordings, whole: TapSet, bitwise: bool) -> Any:
    """Judge the scattered recording against ``whole``, as it is done for a cell."""
    question = Question(
        subject=Role.PROBE,
        against=Role.REPLICATED,
        scattered=True,
        bitwise=bitwise,
        sites=recordings.shape.sites,
        noise_factor=3.0,
    )
    return compare(recordings.scattered, whole, question)


def _sketched(recordings: Recordings) -> None:
    for shard in recordings.shards:
        sketch(shard)


COPY = "copy"
OPERATIONS: dict[str, Operation] = {
    "equal": lambda recordings: compared(recordings, recordings.same, bitwise=True),
    "score": lambda recordings: compared(recordings, recordings.other, bitwise=False),
    "sketch": _sketched,
}
