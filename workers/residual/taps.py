"""What the taps of one arm recorded, read back from its folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file


class NoTaps(ValueError):
    """An arm's folder holds no usable taps: what was expected, and what was found."""


@dataclass(frozen=True)
class TapSet:
    """``ranks[r]["<step>/<site>"]``: what rank ``r`` saw, rows × hidden. ``tokens[n]``: rows of step ``n``."""

    folder: Path
    tokens: list[int]
    ranks: list[dict[str, torch.Tensor]]

    def at(self, rank: int, step: int, site: int) -> torch.Tensor | None:
        return self.ranks[rank].get(f"{step}/{site}")


def load(folder: str | Path, ranks: int) -> TapSet:
    """The taps of ``ranks`` ranks.

    Raises:
        NoTaps: when a rank's files are not there or the ranks did not see the same steps.
    """
    folder = Path(folder)
    indexes, tensors = [], []
    for rank in range(ranks):
        index, data = folder / f"taps-rank{rank}.json", folder / f"taps-rank{rank}.safetensors"
        if not index.exists() or not data.exists():
            raise NoTaps(f"rank {rank} recorded no residual: {data.name} is not in the arm's folder")
        indexes.append([step["tokens"] for step in json.loads(index.read_text())["steps"]])
        tensors.append(load_file(data))
    if any(index != indexes[0] for index in indexes):
        raise NoTaps(f"the ranks recorded different steps: {indexes}")
    return TapSet(folder, indexes[0], tensors)


def site_name(number: int) -> str:
    """``embed``, then per layer ``0.attn``, ``0.mlp``, ``1.attn``, …

    Site ``<layer>.attn`` is the residual with that layer's attention added in, as the norm before the MLP sees it.
    """
    if number == 0:
        return "embed"
    return f"{(number - 1) // 2}.{'attn' if number % 2 else 'mlp'}"


def site_count(layers: int) -> int:
    return 2 * layers + 1
