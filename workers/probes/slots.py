"""Buffers that taps write to from inside a compiled graph.

A captured CUDA graph replays kernels and no Python: so a tap writes into memory that was allocated before, at an
address that stays, and never waits for the device. What Python knows at the time of the capture (how many rows, which
compile range) is written beside it by kernels too, as a mark. A mark is cleared before every step: a slot without one
was not written in this step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

from workers.residual.sketch import Sketch, sketch
from workers.residual.sketch_tables import NUMBERS

Kept = torch.Tensor | Sketch

ROWS, PADDED, FIRST, LAST, SCATTERED = range(5)
"""What a mark holds, int32 each. ``ROWS`` counts from 1 up: 0 says that nothing was written."""


@dataclass(frozen=True)
class Facts:
    """What is known of a write when its graph is made or captured. ``compile_range``: (0, 0) in an eager model."""

    padded: int
    compile_range: tuple[int, int] = (0, 0)
    scattered: bool = False


@dataclass(frozen=True)
class Capacity:
    """``rows``: most rows of one step. ``whole``: residuals are kept as they are, not as sketches."""

    rows: int
    whole: bool

    def slot(self, like: torch.Tensor, hashes_only: bool = False) -> Slot:
        """A slot for tensors of ``like``'s width, dtype and device."""
        # The first forward pass runs in inference mode; what is allocated there could not be cleared outside of it.
        with torch.inference_mode(False):
            if hashes_only:
                return HashSlot(self.rows, like.device)
            return WholeSlot(self.rows, like) if self.whole else SketchSlot(self.rows, like.device)


class Slot(ABC):
    """Memory for one tensor of rows per step."""

    def __init__(self, rows: int, device: torch.device) -> None:
        self.rows = rows
        self.mark = torch.zeros(5, dtype=torch.int32, device=device)

    def write(self, value: torch.Tensor, facts: Facts) -> None:
        """Keep ``value`` (rows × width) until the next write. Launches kernels, waits for none."""
        # What is longer than any step of the plan is a warm-up's and never read.
        self._fill(value[: self.rows])
        for place, number in (
            (ROWS, len(value)),
            (PADDED, facts.padded),
            (FIRST, facts.compile_range[0]),
            (LAST, facts.compile_range[1]),
            (SCATTERED, facts.scattered),
        ):
            self.mark[place].fill_(number)

    def read(self, rows: int) -> Kept:
        """A copy of the first ``rows`` rows on the host. Waits for the device: only between steps.

        Raises:
            RuntimeError: when more rows were written than there is room for.
        """
        if rows > self.rows:
            raise RuntimeError(f"a step wrote {rows} rows where the batch plan's largest has {self.rows}")
        return self._copy(rows)

    @abstractmethod
    def _fill(self, value: torch.Tensor) -> None: ...

    @abstractmethod
    def _copy(self, rows: int) -> Kept: ...

    @property
    @abstractmethod
    def bytes(self) -> int:
        """Memory this slot holds on the device."""


class WholeSlot(Slot):
    """Keeps the rows as they are."""

    def __init__(self, rows: int, like: torch.Tensor) -> None:
        super().__init__(rows, like.device)
        self._buffer = torch.zeros((rows, *like.shape[1:]), dtype=like.dtype, device=like.device)

    def _fill(self, value: torch.Tensor) -> None:
        self._buffer[: len(value)].copy_(value)

    def _copy(self, rows: int) -> torch.Tensor:
        return self._buffer[:rows].to("cpu", copy=True)

    @property
    def bytes(self) -> int:
        return self._buffer.nbytes


class SketchSlot(Slot):
    """Keeps a hash and a projection of each row."""

    def __init__(self, rows: int, device: torch.device) -> None:
        super().__init__(rows, device)
        self._hashes = torch.zeros(rows, dtype=torch.int64, device=device)
        self._projection = torch.zeros(rows, NUMBERS, device=device)

    def _fill(self, value: torch.Tensor) -> None:
        taken = sketch(value)
        self._hashes[: len(value)].copy_(taken.hashes)
        self._projection[: len(value)].copy_(taken.projection)

    def _copy(self, rows: int) -> Sketch:
        return Sketch(self._hashes[:rows].to("cpu", copy=True), self._projection[:rows].to("cpu", copy=True))

    @property
    def bytes(self) -> int:
        return self._hashes.nbytes + self._projection.nbytes


class HashSlot(Slot):
    """Keeps a hash of each row: enough to tell whether ranks hold the same."""

    def __init__(self, rows: int, device: torch.device) -> None:
        super().__init__(rows, device)
        self._hashes = torch.zeros(rows, dtype=torch.int64, device=device)

    def _fill(self, value: torch.Tensor) -> None:
        self._hashes[: len(value)].copy_(sketch(value).hashes)

    def _copy(self, rows: int) -> torch.Tensor:
        return self._hashes[:rows].to("cpu", copy=True)

    @property
    def bytes(self) -> int:
        return self._hashes.nbytes
