"""The pseudo-random numbers of a sketch. They follow from the seed alone, on every device and in every process.

All come from splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014), so that neither
PyTorch's generators nor their versions have a say.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import torch

NUMBERS = 64
"""Length of a projected row."""
BUCKETS = 256
"""A row's columns are first added up, with random signs, in so many sums. More of them make the estimate a little
better and the sketch of a narrow row slower."""
HALF = NUMBERS // 2
RUNS = BUCKETS // HALF
TURN = HALF // RUNS
"""The buckets are added up to ``HALF`` numbers twice: run upon run of ``HALF`` of them, and with each run turned by
``TURN`` more than the one before. No two buckets meet in both, so that columns whose errors cancel in one half show in
the other. Neighbours meet in neither."""
SCALE = 0.5**0.5
BLOCK_WORDS = 256
"""Words of a row that are hashed together, before the hashes of the blocks are."""

_GAMMA = 0x9E3779B97F4A7C15
MULTIPLIERS = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)
SHIFT = 33
_LOW_BITS = (1 << (64 - SHIFT)) - 1


class _Stream(IntEnum):
    FIRST = 1
    SECOND = 2
    OUTER = 3
    SIGNS = 4
    OFFSETS = 5


@dataclass(frozen=True, eq=False)
class HashTables:
    """int64 weights: ``first`` and ``second`` for the words of a block, ``outer`` (odd) for the blocks of a row."""

    first: torch.Tensor
    second: torch.Tensor
    outer: torch.Tensor


@dataclass(frozen=True, eq=False)
class ProjectionTables:
    """Column ``c`` = ``BUCKETS``·b + l is added with ``signs[c]`` to bucket (l + ``offsets[b]``) mod ``BUCKETS``.

    ``signs``: float32, hidden. ``offsets``: int64, one per block of columns; they differ, so that columns a regular
    distance apart share no bucket by rule. Up to ``BUCKETS`` columns each have a bucket to themselves.
    """

    signs: torch.Tensor
    offsets: torch.Tensor


def mix(values: torch.Tensor) -> torch.Tensor:
    """Scramble each int64: a bijection, every bit of the result depends on every bit of the value (MurmurHash3)."""
    for multiplier in MULTIPLIERS:
        values = (values ^ _shifted(values)) * _signed(multiplier)
    return values ^ _shifted(values)


@lru_cache(maxsize=32)
def hash_tables(words: int, device: torch.device, seed: int) -> HashTables:
    """Weights for rows of ``words`` words."""
    blocks = -(-words // BLOCK_WORDS)
    return HashTables(
        first=_random(seed, _Stream.FIRST, BLOCK_WORDS).to(device),
        second=_random(seed, _Stream.SECOND, BLOCK_WORDS).to(device),
        outer=(_random(seed, _Stream.OUTER, blocks) | 1).to(device),
    )


@lru_cache(maxsize=32)
def projection_tables(hidden: int, device: torch.device, seed: int) -> ProjectionTables:
    """Signs and offsets for rows of ``hidden`` numbers."""
    signs = torch.where(_random(seed, _Stream.SIGNS, hidden) < 0, -1.0, 1.0)
    offsets = _random(seed, _Stream.OFFSETS, -(-hidden // BUCKETS)) % BUCKETS
    return ProjectionTables(signs.to(device), offsets.to(device))


@lru_cache(maxsize=32)
def projection_matrix(hidden: int, device: torch.device, seed: int) -> torch.Tensor:
    """The projection of rows of ``hidden`` numbers but for ``SCALE``: float32, hidden × numbers, two ±1 in each row."""
    tables = projection_tables(hidden, torch.device("cpu"), seed)
    column = torch.arange(hidden)
    bucket = (column + tables.offsets[column // BUCKETS]) % BUCKETS
    matrix = torch.zeros(hidden, NUMBERS)
    matrix[column, bucket % HALF] = tables.signs
    matrix[column, HALF + (bucket + bucket // HALF * TURN) % HALF] = tables.signs
    return matrix.to(device)


def _random(seed: int, stream: _Stream, count: int) -> torch.Tensor:
    """``count`` int64 of one stream, uniform over all 64-bit patterns."""
    start = mix(mix(torch.tensor(_signed(seed))) + stream)
    return mix(start + torch.arange(1, count + 1) * _signed(_GAMMA))


def _shifted(values: torch.Tensor) -> torch.Tensor:
    """Shifted to the right without the sign, which PyTorch would carry along."""
    return (values >> SHIFT) & _LOW_BITS


def _signed(value: int) -> int:
    """The int64 with the low 64 bits of ``value``."""
    return (value + 2**63) % 2**64 - 2**63
