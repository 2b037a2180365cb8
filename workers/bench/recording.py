"""Recordings as an engine with two ranks under SP makes them, for what is measured on them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from workers.residual.taps import Step, TapSet, site_count

RANKS = 2

_INTEGERS = {4: torch.int32, 2: torch.int16}


@dataclass(frozen=True)
class Shape:
    """``steps``: tokens of each, even numbers. ``layers``: of the model; each has two sites, and one is before them."""

    hidden: int
    dtype: torch.dtype
    steps: tuple[int, ...]
    layers: int

    @property
    def sites(self) -> int:
        return site_count(self.layers)


@dataclass(frozen=True)
class Recordings:
    """``scattered``: the residual by tokens over two ranks. ``same``: the whole of it, equal to the bit.

    ``other``: each of its numbers is the next one its type has, as if rounded the other way. ``room``: to copy
    ``scattered`` to.
    """

    shape: Shape
    scattered: TapSet
    same: TapSet
    other: TapSet
    room: list[torch.Tensor]

    @property
    def shards(self) -> list[torch.Tensor]:
        """All tensors of ``scattered``."""
        return [_tensor(shard) for rank in self.scattered.ranks for shard in rank.values()]

    @property
    def size(self) -> int:
        """Bytes of ``scattered``."""
        return sum(shard.nbytes for shard in self.shards)


def make(shape: Shape) -> Recordings:
    """Random residuals of ``shape``. No two tensors share memory, and all of it has been written to."""
    draw = torch.Generator().manual_seed(0)
    whole = {
        f"{step}/{site}": torch.randn(tokens, shape.hidden, generator=draw).to(shape.dtype)
        for step, tokens in enumerate(shape.steps)
        for site in range(shape.sites)
    }
    ranks = [{key: value.chunk(RANKS)[rank].clone() for key, value in whole.items()} for rank in range(RANKS)]
    scattered = _taps("scattered", shape, ranks)
    return Recordings(
        shape=shape,
        scattered=scattered,
        same=_taps("same", shape, [whole]),
        other=_taps("other", shape, [{key: _next_number(value) for key, value in whole.items()}]),
        room=[_tensor(shard).clone() for rank in scattered.ranks for shard in rank.values()],
    )


def _taps(folder: str, shape: Shape, ranks: list[dict[str, torch.Tensor]]) -> TapSet:
    steps = [Step(tokens=tokens, padded=tokens) for tokens in shape.steps]
    return TapSet(Path(folder), list(shape.steps), [{**rank} for rank in ranks], steps)


def _next_number(value: torch.Tensor) -> torch.Tensor:
    """Bits, read as an integer and counted on by one."""
    return (value.view(_INTEGERS[value.element_size()]) + 1).view(value.dtype)


def _tensor(recorded: object) -> torch.Tensor:
    if not isinstance(recorded, torch.Tensor):
        raise TypeError(f"made as a tensor, and found as {type(recorded).__name__}")
    return recorded
