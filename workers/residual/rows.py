"""Rows of a residual, whole or as a sketch: both answer the same few questions.

What can be asked: which rows are the same, how far one row is from another, and what linear arithmetic on rows needs
(twice a row, the difference of two). All that compares, names or localises is written against :class:`Rows` alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

from workers.residual import measure
from workers.residual.sketch import ESTIMATE_FLOOR, Sketch, estimated_relative_error
from workers.residual.taps import Recorded

NEAREST_ROWS = 512
"""Rows at a time that are held against all others: bounds the matrix of distances."""


@dataclass(frozen=True, eq=False)
class Held:
    """Row by row: ``equal`` (bool) and ``error``, the relative error ‖x - y‖ / ‖y‖ (float64).

    The error is 0 where equal, infinite where a row is not finite or y is zero. ``apart`` and ``size``: ‖x - y‖ and
    ‖y‖ (float64).
    """

    equal: torch.Tensor
    error: torch.Tensor
    apart: torch.Tensor
    size: torch.Tensor

    @property
    def distance(self) -> float | None:
        """The relative error of all rows together, ``None`` where a number is not finite."""
        return _together(self.apart, self.size)

    @property
    def worst(self) -> float:
        return float(self.error.max()) if len(self.error) else 0.0


class Rows(ABC):
    """Rows of one residual. ``width``: numbers kept of each; ``digits``: relative error below which nothing shows."""

    width: int
    dtype: torch.dtype | None
    digits: float

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def part(self, start: int, stop: int) -> Rows:
        """Rows from ``start`` up to ``stop``, or as many of them as there are."""

    @abstractmethod
    def take(self, index: torch.Tensor) -> Rows: ...

    @abstractmethod
    def equal(self, other: Rows) -> bool:
        """All rows are the same; a NaN equals nothing, and neither do rows of another kind or number."""

    @abstractmethod
    def hold(self, other: Rows) -> Held:
        """Each row against the same row of ``other``, which has as many of the same kind.

        Raises:
            ValueError: when it has not.
        """

    @abstractmethod
    def numbers(self) -> torch.Tensor:
        """What can be calculated with: rows × ``width`` in float64, linear in the rows."""

    def comparable(self, other: Rows) -> bool:
        return type(self) is type(other) and self.width == other.width

    def finite(self) -> bool:
        return bool(self.numbers().isfinite().all())

    def zero(self) -> bool:
        """Every number of every row is zero."""
        return not self.numbers().any()

    def nearest(self, other: Rows) -> torch.Tensor:
        """For each row the number of the row of ``other`` that is closest to it (int64, rows)."""
        pool = other.numbers()
        found = [torch.cdist(part, pool).argmin(dim=1) for part in torch.split(self.numbers(), NEAREST_ROWS)]
        return torch.cat(found) if found else torch.empty(0, dtype=torch.int64)


class WholeRows(Rows):
    """Rows of which every number was kept."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values
        self.width = values.shape[-1]
        self.dtype = values.dtype
        self.digits = torch.finfo(values.dtype).eps

    def __len__(self) -> int:
        return len(self.values)

    def part(self, start: int, stop: int) -> WholeRows:
        return WholeRows(self.values[start:stop])

    def take(self, index: torch.Tensor) -> WholeRows:
        return WholeRows(self.values[index])

    def equal(self, other: Rows) -> bool:
        if not isinstance(other, WholeRows):
            return False
        # A reference in full precision is held against in full precision.
        return measure.equal(self.values.to(other.values.dtype), other.values)

    def hold(self, other: Rows) -> Held:
        if not isinstance(other, WholeRows):
            raise ValueError("whole rows cannot be held against sketches")
        found = measure.rows(self.values, other.values)
        return Held(found.equal, found.relative, found.error, found.size)

    def finite(self) -> bool:
        return measure.finite(self.values)

    def zero(self) -> bool:
        return not self.values.any()

    def numbers(self) -> torch.Tensor:
        return self.values.double()


class SketchRows(Rows):
    """Rows of which a hash and a projection were kept."""

    def __init__(self, kept: Sketch) -> None:
        self.kept = kept
        self.width = kept.projection.shape[-1]
        self.dtype = None
        self.digits = ESTIMATE_FLOOR

    def __len__(self) -> int:
        return len(self.kept.hashes)

    def part(self, start: int, stop: int) -> SketchRows:
        return SketchRows(Sketch(self.kept.hashes[start:stop], self.kept.projection[start:stop]))

    def take(self, index: torch.Tensor) -> SketchRows:
        return SketchRows(Sketch(self.kept.hashes[index], self.kept.projection[index]))

    def equal(self, other: Rows) -> bool:
        if not isinstance(other, SketchRows) or len(self) != len(other):
            return False
        return torch.equal(self.kept.hashes, other.kept.hashes) and self.finite()

    def hold(self, other: Rows) -> Held:
        if not isinstance(other, SketchRows):
            raise ValueError("sketches cannot be held against whole rows")
        error = estimated_relative_error(self.kept, other.kept).nan_to_num(nan=torch.inf, posinf=torch.inf)
        equal = (self.kept.hashes == other.kept.hashes) & error.isfinite()
        reference = other.numbers()
        apart = torch.linalg.vector_norm(self.numbers() - reference, dim=-1)
        return Held(equal, error, apart, torch.linalg.vector_norm(reference, dim=-1))

    def numbers(self) -> torch.Tensor:
        return self.kept.projection.double()


def _together(errors: torch.Tensor, sizes: torch.Tensor) -> float | None:
    ratio = float(torch.linalg.vector_norm(errors) / torch.linalg.vector_norm(sizes)) if len(errors) else 0.0
    return ratio if torch.tensor(ratio).isfinite() else None


def rows_of(kept: Recorded) -> Rows:
    return SketchRows(kept) if isinstance(kept, Sketch) else WholeRows(kept)
