"""What the check of the residual costs: its throughput, its memory per token, and what the taps add to a step."""

from __future__ import annotations

import tempfile
from pathlib import Path

from workers.bench import Measured, taps
from workers.bench.throughput import OPERATIONS, Sizes, throughput

GOAL = 0.3


def measure(models: Path, quick: bool, sizes: Sizes | None = None) -> Measured:
    """All rows. The figure is the lowest throughput of comparison or sketch, divided by that of a copy.

    ``equal`` judges recordings of the same bits, ``score`` such as differ by a rounding in every number. ``quick``:
    without the rows for the taps, for which engines are started; less than a minute.

    Raises:
        BenchFailed: when an engine did not come through.
    """
    rows = [row for of_one_shape in throughput(sizes or Sizes()) for row in of_one_shape]
    figure = min(row["to_copy"] for row in rows if row["what"] in OPERATIONS)
    if not quick:
        with tempfile.TemporaryDirectory(prefix="shardproof-bench-") as folder:
            rows += taps.cost(Path(folder), models)
    return Measured(figure=figure, unit="of the throughput of a copy", goal=GOAL, threads=1, rows=rows)
