"""What is kept of a residual too large to keep: 264 bytes per token, whatever the hidden size.

*Hash.* 64 bits of the row's bits: rows with the same bits have the same hash, two rows that differ in any bit (the sign
of a zero, the payload of a NaN) have different ones but for a chance of about 2^-63 over the seed. Blocks of 256 words
(32 bits; 16 where a row is not whole 32-bit words) are hashed by two multiply-adds with random 64-bit weights, modulo
2^64: for any two blocks both sums agree with probability 2^-66 at most. The two are mixed into one number, and those of
the blocks are multiplied by odd weights and added.

*Projection.* 64 float32 numbers, linear in the row x: p = xᵀ·M with M the same on each rank and run for one hidden size
and seed, so that the difference of two projections is the projection of the difference. M is sparse (Kane, Nelson:
Sparser Johnson-Lindenstrauss transforms, 2014): each column, with a random sign, is added into 256 buckets and those
into 32 numbers in two ways, all divided by √2. A dense M of ±1/8 estimates hardly better and costs 64 products per
number of the row, more time than reading it.

*Error of the estimate.* E‖p‖² = ‖x‖² and, over the seeds, Var ‖p‖² ≤ 2·(1/64 + 1/512)·‖x‖⁴ for rows whose size does not
sit in a few columns: ‖p‖ has a relative standard deviation of 0.094 at most (√(2/64)/2 = 0.088 up to 256 columns, as
with a dense M). The estimated relative error is a quotient of two such norms: 0.133 where they are independent.
Tested over random rows and errors: the mean of estimate ÷ truth is within 3 % of 1, the standard deviation at most
0.15, and no estimate is off by more than a factor of 2. A row that is wrong in one column alone is measured exactly;
for one that is wrong in columns 32 apart the deviation of ‖p‖ is 0.12.
Two limits:
- Float32 sums round. Below ``ESTIMATE_FLOOR`` an estimate says no more than that the error is that small.
- Two columns of different blocks of 256 share a bucket with probability 1/256. Where a row is wrong in those two alone,
  by the same amount, the errors may cancel, and since M is the same for all rows they do so in each. The hash still
  tells that the rows differ.

*Cost.* The CPU reads the rows once, see ``sketch_cpu``; its loops use one core. Elsewhere PyTorch's own operations do,
without waiting for the device; their working memory is bounded by ``WORKING_WORDS``. The first call for a width, dtype,
device and seed makes the tables (and compiles the CPU's loops), which must not happen while a CUDA graph is captured:
call once before, an empty tensor of the same width will do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec

import torch

from workers.residual.sketch_tables import (
    BLOCK_WORDS,
    NUMBERS,
    SCALE,
    HashTables,
    hash_tables,
    mix,
    projection_matrix,
    projection_tables,
)

BYTES_PER_TOKEN = 8 + 4 * NUMBERS
"""Memory of a sketch per row: a recording of T tokens at S sites in N steps takes 264·T·S·N bytes per rank. The rows
themselves take that much at 66 float32 or 132 bfloat16 numbers: below, a sketch saves nothing."""

ESTIMATE_FLOOR = 3e-7
"""Relative error below which float32 rounding in the projection drowns the estimate."""

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

WORKING_WORDS = 1 << 23
"""Words that are multiplied at a time outside the CPU's own loops, 16 bytes of working memory for each."""

COMPILED_LOOPS = find_spec("numba") is not None
"""Numba is there, as it is wherever vLLM is. Without it the CPU uses PyTorch's operations, some 20 times slower."""

CPU_ROWS = 256
"""Rows that the CPU converts to float32 at a time, where their dtype is not one it reads as it is."""


@dataclass(frozen=True, eq=False)
class Sketch:
    """``hashes``: int64, rows. ``projection``: float32, rows × 64."""

    hashes: torch.Tensor
    projection: torch.Tensor


def sketch(rows: torch.Tensor, seed: int = 0) -> Sketch:
    """Hash and projection of each of ``rows`` (rows × hidden, of one of ``DTYPES``), on the device they are on.

    Projections are comparable between dtypes of one hidden size; hashes only within a dtype. The hash of a row depends
    on nothing but its bits and the seed. So does its projection on the CPU; elsewhere it may differ by rounding, with
    the device and the number of rows.

    Raises:
        ValueError: when ``rows`` is no matrix of one of ``DTYPES``.
    """
    if rows.dim() != 2 or rows.dtype not in DTYPES:
        raise ValueError(f"a sketch is taken of rows × hidden floating-point numbers, not of {_describe(rows)}")
    rows = rows.detach().contiguous()
    if rows.device.type == "cpu" and COMPILED_LOOPS:
        return _sketch_on_cpu(rows, seed)
    return sketch_in_torch(rows, seed)


def equal_rows(found: Sketch, expected: Sketch) -> torch.Tensor:
    """Which rows have the same bits (bool, rows).

    Raises:
        ValueError: when the sketches are not of the same number of rows.
    """
    _refuse_other_rows(found, expected)
    return found.hashes == expected.hashes


def estimated_relative_error(found: Sketch, expected: Sketch) -> torch.Tensor:
    """Estimate of ‖x - y‖ / ‖y‖ for each row x of ``found`` and y of ``expected`` (float64, rows).

    Zero for finite rows with the same bits. Not finite where a row is not, where it is too large for float32 sums, and
    where the expected row is zero (or too small for float32) and the found one has other bits.

    Raises:
        ValueError: when the sketches are not of the same number of rows.
    """
    # In float64: the squares of large or small float32 numbers do not fit float32.
    reference = expected.projection.double()
    difference = torch.linalg.vector_norm(found.projection.double() - reference, dim=-1)
    ratio = difference / torch.linalg.vector_norm(reference, dim=-1)
    return torch.where(equal_rows(found, expected) & difference.isfinite(), 0.0, ratio)


def sketch_in_torch(rows: torch.Tensor, seed: int) -> Sketch:
    """:func:`sketch` of contiguous ``rows`` in PyTorch's own operations, for every device. None waits for it."""
    words = _words(rows)
    tables = hash_tables(words.shape[1], rows.device, seed)
    matrix = projection_matrix(rows.shape[1], rows.device, seed)
    step = max(1, WORKING_WORDS // max(1, words.shape[1]))
    hashes = torch.cat([_hashes(part, tables) for part in torch.split(words, step)])
    with _full_float32():
        projection = torch.cat([part.to(torch.float32) @ matrix for part in torch.split(rows, step)])
    return Sketch(hashes, projection * SCALE)


def _hashes(words: torch.Tensor, tables: HashTables) -> torch.Tensor:
    padded = torch.nn.functional.pad(words, (0, -words.shape[1] % BLOCK_WORDS))
    blocks = padded.view(len(words), len(tables.outer), BLOCK_WORDS)
    one = (blocks * tables.first).sum(dim=-1)
    two = (blocks * tables.second).sum(dim=-1)
    return (mix(one ^ mix(two)) * tables.outer).sum(dim=-1)


def _sketch_on_cpu(rows: torch.Tensor, seed: int) -> Sketch:
    # Imported here: loading numba takes time that an engine on GPUs has no use for.
    from workers.residual.sketch_cpu import sketch_bfloat16, sketch_float32

    words = _words(rows)
    hashing = hash_tables(words.shape[1], rows.device, seed)
    projecting = projection_tables(rows.shape[1], rows.device, seed)
    tables = (hashing.first, hashing.second, hashing.outer, projecting.signs, projecting.offsets)
    arrays = [table.numpy() for table in tables]
    result = Sketch(torch.empty(len(rows), dtype=torch.int64), torch.empty(len(rows), NUMBERS))

    def fill(loops: Callable[..., None], part: slice, values: torch.Tensor) -> None:
        into = (result.hashes[part].numpy(), result.projection[part].numpy())
        loops(words[part].numpy(), values.numpy(), *arrays, *into)

    whole = slice(None)
    if rows.dtype == torch.float32:
        fill(sketch_float32, whole, rows)
    elif rows.dtype == torch.bfloat16:
        fill(sketch_bfloat16, whole, rows.view(torch.uint16))
    else:
        for start in range(0, len(rows), CPU_ROWS):
            part = slice(start, start + CPU_ROWS)
            fill(sketch_float32, part, rows[part].to(torch.float32))
    return result


def _words(rows: torch.Tensor) -> torch.Tensor:
    """``rows`` as integers of 32 bits, of 16 where a row is not whole ones of 32."""
    word = torch.int32 if rows.shape[1] * rows.element_size() % 4 == 0 else torch.int16
    if word.itemsize > rows.element_size() and rows.storage_offset() % 2:
        # A wider view must start at a multiple of its width.
        rows = rows.clone()
    return rows.view(word)


@contextmanager
def _full_float32() -> Iterator[None]:
    """Float32 products in float32: an engine may have lowered them to TF32 or bfloat16, which hides small errors."""
    backends = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]
    before = [backend.fp32_precision for backend in backends]
    try:
        for backend in backends:
            backend.fp32_precision = "ieee"
        yield
    finally:
        for backend, precision in zip(backends, before, strict=True):
            backend.fp32_precision = precision


def _refuse_other_rows(found: Sketch, expected: Sketch) -> None:
    if found.hashes.shape != expected.hashes.shape:
        raise ValueError(f"sketches of {len(found.hashes)} and of {len(expected.hashes)} rows cannot be compared")


def _describe(rows: torch.Tensor) -> str:
    return f"{' × '.join(map(str, rows.shape)) or 'one'} {str(rows.dtype).removeprefix('torch.')}"
