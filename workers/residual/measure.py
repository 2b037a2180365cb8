"""The few questions a comparison asks of its tensors, each in as few passes over memory as it takes.

Rows are looked at in blocks that stay in a core's cache, and in words of the processor's width where only bits matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

BLOCK_BYTES = 256 << 10
WORD = torch.int64


def finite(value: torch.Tensor) -> bool:
    """No element is NaN or infinite: the extremes tell, since NaN is passed on to them."""
    if value.numel() == 0:
        return True
    low, high = torch.aminmax(value)
    return math.isfinite(float(low)) and math.isfinite(float(high))


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal in shape and every element. Equal bits are the usual case and the cheap one; NaN equals nothing."""
    if one.shape != other.shape:
        return False
    if one.dtype == other.dtype and _in_words(one) and _in_words(other):
        return (_same_bits(one, other) and finite(one)) or torch.equal(one, other)
    return torch.equal(one, other)


def _in_words(value: torch.Tensor) -> bool:
    return value.is_contiguous() and value.shape[-1] * value.element_size() % WORD.itemsize == 0 and value.numel() > 0


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.view(WORD), other.view(WORD))


def largest(value: torch.Tensor) -> float:
    """The largest magnitude; 0 where there is nothing."""
    if value.numel() == 0:
        return 0.0
    low, high = torch.aminmax(value)
    return max(abs(float(low)), abs(float(high)))


def largest_difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest magnitude of ``one - other``, subtracted in float32 or better."""
    wide = torch.promote_types(torch.promote_types(one.dtype, other.dtype), torch.float32)
    return max((largest(a.to(wide) - b.to(wide)) for a, b in _blocks(one, other)), default=0.0)


def differing_rows(one: torch.Tensor, other: torch.Tensor) -> int:
    """How many rows differ in any element."""
    return sum(int((a != b).any(dim=-1).sum()) for a, b in _blocks(one, other))


def _blocks(one: torch.Tensor, other: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    rows = max(1, BLOCK_BYTES // max(1, one[:1].numel() * one.element_size()))
    return zip(torch.split(one, rows), torch.split(other, rows), strict=True)
